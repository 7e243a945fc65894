"""What this machine has: processor, cores, memory and the libraries that pareo can use."""

import os
import platform
import subprocess
import time
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pareo.device import cores

LIBRARIES = (
    "numpy", "numba", "cupy-cuda13x", "nvidia-cuda-nvrtc", "nvidia-cublas", "nvidia-cudnn-cu13",
    "nvidia-cudnn-frontend", "torch", "jax", "tensorflow", "keras",
)  # fmt: skip


def processor() -> str:
    """The processor's name, as far as the system reports it."""
    names = {"model name", "Model", "Processor"}
    for line in _lines("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() in names:
            return value.strip()
    for line in _lines("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() == "CPU part":
            return ARM_PARTS.get(value.strip(), f"{platform.machine()} (part {value.strip()})")
    return platform.processor() or platform.machine()


# Arm processors report only a number.
ARM_PARTS = {
    "0xd0c": "Arm Neoverse N1",
    "0xd40": "Arm Neoverse V1",
    "0xd49": "Arm Neoverse N2",
    "0xd4f": "Arm Neoverse V2",
}


def memory() -> int | None:
    """Bytes of memory, or None where the system does not report it."""
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return None


def idle_cores(seconds: float = 0.5) -> float | None:
    """How many cores of the machine are idle, on average over some seconds; None if unknown."""
    before = _lines("/proc/stat")[:1]
    time.sleep(seconds)
    after = _lines("/proc/stat")[:1]
    return _idle(before[0], after[0], os.cpu_count() or 1) if before and after else None


def _idle(before: str, after: str, count: int) -> float:
    """Two first lines of /proc/stat: user, nice, system, idle, waiting, interrupts (2), stolen.

    >>> _idle("cpu 100 0 0 100 0 0 0 0", "cpu 130 0 10 150 5 0 0 5", count=2)
    1.1
    """
    spent = [int(b) - int(a) for a, b in zip(before.split()[1:9], after.split()[1:9], strict=True)]
    return round(count * (spent[3] + spent[4]) / max(sum(spent), 1), 1)


def libraries() -> dict[str, str | None]:
    """The version of each library, without importing it; None where it is not installed."""
    return {name: _version(name) for name in LIBRARIES}


@cache  # a live table asks for all of them at every change
def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Gpu:
    """An NVIDIA GPU as its driver reports it; memory in bytes, clocks in MHz."""

    name: str
    driver: str
    memory: int
    free: int
    clock: int
    highest_clock: int
    memory_clock: int


QUERY = "name,driver_version,memory.total,memory.free,clocks.sm,clocks.max.sm,clocks.mem"


def gpus() -> list[Gpu]:
    """The NVIDIA GPUs of this machine, `cuda:0` first; none where there is no driver."""
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [_gpu(line) for line in done.stdout.splitlines() if line.strip()]


def _gpu(line: str) -> Gpu:
    """One line of nvidia-smi; an unknown number is 0.

    >>> _gpu("NVIDIA H200, 580.159.04, 143771, 143156, 1980, 1980, [N/A]").memory_clock
    0
    """
    name, driver, *numbers = (part.strip() for part in line.split(","))
    total, free, *clocks = (int(n) if n.isdecimal() else 0 for n in numbers)
    return Gpu(name, driver, total << 20, free << 20, *clocks)


def describe() -> dict[str, object]:
    """Everything above, for a record.

    >>> describe()["cores"] >= 1
    True
    """
    return {
        "processor": processor(),
        "architecture": platform.machine(),
        "cores": cores(),
        "memory_bytes": memory(),
        "python": platform.python_version(),
        "libraries": libraries(),
        "cards": [asdict(gpu) for gpu in gpus()],
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
