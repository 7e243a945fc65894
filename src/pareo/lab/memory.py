"""How much memory this process has, and has had at most."""

import resource
import sys
from pathlib import Path

UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss


def peak() -> int:
    """The most bytes of memory that this process has had so far.

    >>> peak() > 1 << 20
    True
    """
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT


def now() -> int:
    """The bytes of memory that this process has now; where the system does not tell, the most."""
    return _status("VmRSS") or peak()


def _status(name: str) -> int | None:
    """A line of Linux's own account: unlike `getrusage`, it knows nothing of a parent process."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith(name)]
    return int(found[0]) * 1024 if found else None
