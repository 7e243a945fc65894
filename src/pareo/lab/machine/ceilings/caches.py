"""The caches of this machine's processor, as Linux reports them."""

from pathlib import Path

from pareo.lab.machine.ceilings.model import Level

PLACE = Path("/sys/devices/system/cpu/cpu0/cache")


def levels(place: Path = PLACE) -> list[Level]:
    """The caches for data, the nearest first; none if the system does not report them.

    >>> all(level.nbytes > 0 for level in levels())
    True
    """
    found = []
    for index in sorted(place.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            number = int((index / "level").read_text())
            nbytes = _bytes((index / "size").read_text())
            shared = _count((index / "shared_cpu_list").read_text())
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and nbytes:
            found.append(Level(f"L{number}", nbytes, shared))
    return sorted(found, key=lambda level: level.name)


def _bytes(text: str) -> int:
    """A size as sysfs writes it.

    >>> _bytes("1024K"), _bytes("2M")
    (1048576, 2097152)
    """
    text = text.strip()
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit


def _count(text: str) -> int:
    """Length of a list of numbers and ranges.

    >>> _count("0-3,8,10-11")
    7
    """
    ends = [part.split("-") for part in text.strip().split(",")]
    return sum(int(end[-1]) - int(end[0]) + 1 for end in ends)
