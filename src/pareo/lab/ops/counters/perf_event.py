"""Linux counters of a process: cycles, instructions, cache misses.

`perf_event_open` has no wrapper in Python, and the `perf` program need not be installed, so the
system call is made by number.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS = {"x86_64": 298, "aarch64": 241}  # the number of perf_event_open
ATTRIBUTES = 64  # bytes: the first version of perf_event_attr, which all kernels take
HARDWARE, SOFTWARE = 0, 1
EVENTS = {
    "cycles": (HARDWARE, 0),
    "instructions": (HARDWARE, 1),
    "cache references": (HARDWARE, 2),
    "cache misses": (HARDWARE, 3),
}
# Counted by the kernel itself, on any machine.
SOFTWARE_EVENTS = {"page faults": (SOFTWARE, 2), "context switches": (SOFTWARE, 3)}
USER_ONLY = 1 << 5 | 1 << 6  # not the kernel, not the hypervisor: what a user may count


class NoCounter(Exception):
    """Why an event cannot be counted, in one line."""


def why_not() -> str:
    """Why hardware counters cannot be used here; empty if they can."""
    try:
        os.close(_opened(0, *EVENTS["cycles"]))
    except NoCounter as reason:
        return str(reason)
    return ""


def counted(work: Callable[[], Any], events: dict[str, tuple[int, int]] = EVENTS) -> dict[str, int]:
    """Counts of all threads of this process during some work, by event.

    Threads that the work starts are not counted, so it should have run once before.
    """
    threads = [int(path.name) for path in Path("/proc/self/task").iterdir()]
    opened: dict[str, list[int]] = {name: [] for name in events}
    try:
        for name, event in events.items():
            opened[name] = [_opened(thread, *event) for thread in threads]
        before = {name: _read(files) for name, files in opened.items()}
        work()
        return {name: _read(files) - before[name] for name, files in opened.items()}
    finally:
        for files in opened.values():
            for file in files:
                os.close(file)


def _opened(thread: int, kind: int, event: int) -> int:
    """A file that counts one event of one thread (0 is this one), on any core."""
    number = CALLS.get(platform.machine())
    if sys.platform != "linux" or number is None:
        raise NoCounter(f"not known for {sys.platform} on {platform.machine()}")
    attributes = struct.pack("=IIQQQQQ", kind, ATTRIBUTES, event, 0, 0, 0, USER_ONLY)
    buffer = ctypes.create_string_buffer(attributes.ljust(ATTRIBUTES, b"\0"), ATTRIBUTES)
    file = _libc().syscall(number, buffer, thread, -1, -1, 0)
    if file < 0:
        raise NoCounter(_reason(ctypes.get_errno()))
    return int(file)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _reason(number: int) -> str:
    """An error number of the kernel in words.

    >>> _reason(errno.ENOENT)
    'this processor, or the virtual machine on it, offers no such counter'
    """
    if number in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
        return "this processor, or the virtual machine on it, offers no such counter"
    if number in (errno.EACCES, errno.EPERM):
        return f"the kernel forbids it (kernel.perf_event_paranoid is {_paranoid()})"
    return os.strerror(number)


def _paranoid() -> str:
    try:
        return Path("/proc/sys/kernel/perf_event_paranoid").read_text().strip()
    except OSError:
        return "unknown"


def _read(files: list[int]) -> int:
    return sum(int.from_bytes(os.read(file, 8), sys.byteorder) for file in files)
