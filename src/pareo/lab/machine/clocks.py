"""How fast the clocks of this machine run, and who takes its time: read before and after a turn.

On a Linux CPU: the frequency of the cores, where the kernel shows it, and the time that a
hypervisor gave to other machines. On an NVIDIA GPU: clock, temperature, power, the reasons why
clocks are held down, and the energy counter (`nvml`).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

STOLEN = 0.02  # of the processor time of a turn: more, and a sample is marked
FEW = 3  # ticks of 10 ms: fewer may be those of a moment before
SLOWER = 0.9  # of the highest frequency that was seen: less, and a sample is marked
FREQUENCIES = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq"


@dataclass(frozen=True)
class Reading:
    """The processor at one moment; None is what the kernel does not show.

    megahertz: the mean of all cores. stolen, total: ticks of all cores since the machine started.
    """

    megahertz: float | None = None
    stolen: int | None = None
    total: int | None = None


def read(root: str = "/") -> Reading:
    """The processor now."""
    stat = _text(Path(root, "proc/stat")).partition("\n")[0]
    stolen, total = ticks(stat)
    files = sorted(Path(root).glob(FREQUENCIES.lstrip("/")))
    found = frequencies(map(_text, files)) or of_cpuinfo(_text(Path(root, "proc/cpuinfo")))
    return Reading(mean(found) if found else None, stolen, total)


def ticks(line: str) -> tuple[int | None, int | None]:
    """Stolen ticks and all ticks in the first line of /proc/stat.

    The fields are user, nice, system, idle, iowait, irq, softirq and steal.

    >>> ticks("cpu  10 1 5 100 2 0 1 7 0 0")
    (7, 126)
    >>> ticks("cpu"), ticks("")
    ((None, None), (None, None))
    """
    numbers = [int(word) for word in line.split()[1:9] if word.isdecimal()]
    return (numbers[7], sum(numbers)) if len(numbers) == 8 else (None, None)


def frequencies(texts: Iterable[str]) -> list[float]:
    """MHz of the cores, from the kernel's files, which have kHz.

    >>> frequencies(["3000000\\n", "2900000", "<unknown>"])
    [3000.0, 2900.0]
    """
    return [int(text) / 1000 for text in map(str.strip, texts) if text.isdecimal() and int(text)]


def of_cpuinfo(text: str) -> list[float]:
    """MHz of the cores, as x86 kernels write them to /proc/cpuinfo.

    >>> of_cpuinfo("processor : 0\\ncpu MHz\\t\\t: 2899.998\\n")
    [2899.998]
    """
    return [float(one) for one in re.findall(r"^cpu MHz\s*:\s*(\d+(?:\.\d+)?)", text, re.M)]


def stolen_share(before: Reading, after: Reading) -> float | None:
    """The share of all processor time between two readings that other machines got.

    It is 0 for fewer than FEW ticks: in a short turn one of them would be a large share.

    >>> stolen_share(Reading(None, 100, 1000), Reading(None, 120, 1400))
    0.05
    >>> stolen_share(Reading(None, 100, 1000), Reading(None, 101, 1010))
    0.0
    """
    if None in (before.stolen, before.total, after.stolen, after.total):
        return None
    spent = (after.total or 0) - (before.total or 0)
    taken = (after.stolen or 0) - (before.stolen or 0)
    if spent <= 0:
        return None
    return taken / spent if taken >= FEW else 0.0


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
