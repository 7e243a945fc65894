"""The memory of a process: now, at its peak, and its limit.

What counts is resident memory: pages that the process has touched, including those of its
libraries, and those that were swapped out. Address space that is only reserved costs nothing;
`reserved` reports it separately.
"""

import ctypes
import gc
import resource
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pareo.errors import PareoError

UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
OFTEN = 0.004  # seconds between two checks: a process touches some 15 MB in that time
SHARE_OF_FREE = 0.85
UNITS = {"GB": 10**9, "MB": 10**6, "GIB": 1 << 30, "MIB": 1 << 20}


def peak() -> int:
    """The most bytes of memory that this process has had so far.

    >>> peak() > 1 << 20
    True
    """
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT


def now() -> int:
    """The bytes of memory that this process has now; its peak if the system does not report it."""
    return _status("VmRSS") or peak()


def reserved() -> int | None:
    """The writable bytes that this process has requested, touched or not; None if unknown."""
    return _status("VmData")


def forget_peak() -> bool:
    """Reset `peak` to the present value; False if the system does not allow it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def give_back() -> None:
    """Return freed memory that is kept for later to the system, as far as the C library can."""
    gc.collect()
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def free() -> int | None:
    """The bytes that the system can give to processes without swapping; None if unknown."""
    return _line(Path("/proc/meminfo"), "MemAvailable")


def safe() -> int | None:
    """The bytes that one more process may have without swapping; None if unknown."""
    there = free()
    return None if there is None else int(SHARE_OF_FREE * there)


def parsed(text: str) -> int:
    """A size in bytes, from text.

    >>> parsed("2GB"), parsed("512 MiB"), parsed("1.5gb")
    (2000000000, 536870912, 1500000000)
    """
    for unit, size in UNITS.items():
        number = text.strip().upper().removesuffix(unit)
        if number != text.strip().upper():
            with suppress(ValueError):
                if 1 <= (found := float(number) * size) < 1 << 62:
                    return int(found)
    raise PareoError(f"expected a size such as 2GB, 512MB or 1.5GiB; got {text!r}")


class Watch:
    """Calls `end` as soon as a process is seen with more memory than `most` bytes.

    It checks from another process, so the watched one cannot prevent it. Reservations are not
    limited, because frameworks reserve what they never touch. A peak between two checks is missed
    here, but the system keeps it: ask the process for its `peak` at the end.
    """

    def __init__(self, pid: int, most: int, end: Callable[[], None], often: float = OFTEN) -> None:
        self.most, self.seen = most, 0
        self._file, self._end, self._often = Path(f"/proc/{pid}/status"), end, often
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, name=f"memory of {pid}", daemon=True)
        self._thread.start()

    @property
    def passed(self) -> bool:
        """Whether it was seen with more."""
        return self.seen > self.most

    def stop(self) -> None:
        """Stop checking."""
        self._done.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(self._often):
            resident = _line(self._file, "VmRSS")
            if resident is None:
                return  # it has ended
            self.seen = max(self.seen, resident + (_line(self._file, "VmSwap") or 0))
            if self.passed:
                self._end()
                return


def _status(name: str) -> int | None:
    """A line of /proc/self/status, which unlike `getrusage` ignores the parent process."""
    return _line(Path("/proc/self/status"), name)


def _line(file: Path, name: str) -> int | None:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(found[0]) * 1024 if found else None
