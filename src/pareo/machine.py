"""What this machine has: processor, cores, memory and the libraries that pareo can use."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pareo.device import cores

LIBRARIES = ("numpy", "numba", "cupy-cuda13x", "torch", "jax", "tensorflow")


def processor() -> str:
    """The processor's name, as well as the system tells it."""
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


# Arm processors name themselves by number alone.
ARM_PARTS = {
    "0xd0c": "Arm Neoverse N1",
    "0xd40": "Arm Neoverse V1",
    "0xd49": "Arm Neoverse N2",
    "0xd4f": "Arm Neoverse V2",
}


def memory() -> int | None:
    """Bytes of memory, or None where the system does not tell."""
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return None


def libraries() -> dict[str, str | None]:
    """The version of each library, without importing it; None where it is not installed."""
    found: dict[str, str | None] = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


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
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
