"""Sizes in bytes, as they are written on the command line: 2MB..1GB."""

from pareo.errors import PareoError

UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "B": 1}


def sizes(text: str) -> list[int]:
    """Sizes separated by commas, or doubling from the first to the last.

    >>> [size >> 20 for size in sizes("2MB..16MB,1GB")]
    [2, 4, 8, 16, 1024]
    """
    found: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        found.append(size(first))
        if dots:
            end = size(last)
            if end < found[-1]:
                raise PareoError(f"--sizes expects the smaller size first; got {part!r}")
            while found[-1] * 2 <= end:
                found.append(found[-1] * 2)
            if found[-1] != end:
                found.append(end)
    return found


def size(text: str) -> int:
    """One size; an MB is 2^20 bytes, as in the paper.

    >>> size("2MB"), size("1.5 kb")
    (2097152, 1536)
    """
    words = text.strip().upper()
    for unit, factor in UNITS.items():
        if words.endswith(unit):
            try:
                nbytes = int(float(words.removesuffix(unit)) * factor)
            except (ValueError, OverflowError):
                break
            if 1 <= nbytes <= 1 << 50:
                return nbytes
            break
    raise PareoError(f"--sizes expects sizes such as 2MB..1GB or 512KB; got {text!r}")


def shown(nbytes: int) -> str:
    """A size as text.

    >>> shown(2 << 20), shown(1 << 30), shown(1536)
    ('2 MB', '1 GB', '1.5 KB')
    """
    for unit in ("GB", "MB", "KB"):
        if nbytes >= UNITS[unit]:
            return f"{nbytes / UNITS[unit]:.3g} {unit}"
    return f"{nbytes} B"
