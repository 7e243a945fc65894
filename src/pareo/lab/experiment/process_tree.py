"""Finding and ending everything that a process has started.

A process that calls `lead` has a session of its own. On Linux it also becomes the parent of orphans
below it, including daemons that have left the session. Descendants of a process that has crashed
are found if they have not left the session.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>
SWEEPS = 5  # over /proc, for processes that start others while they are ended


class Found(NamedTuple):
    """A process; its start time distinguishes it from a later one with the same number."""

    pid: int
    start: int


def lead() -> None:
    """Give this process a session of its own, and make it the parent of orphans below it."""
    with contextlib.suppress(OSError):  # it leads a group already
        os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def of(pid: int, known: Collection[Found] = ()) -> set[Found]:
    """Running processes that a process has started: its session, and all descendants.

    Descendants of the known ones are included. The process must be alive, or dead and not yet
    waited for. The set is empty where the system has no /proc.
    """
    parents: dict[int, int] = {}
    starts: dict[int, int] = {}
    session = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
            # After the name, which may hold anything: state, parent, group, session, ...
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            number = int(folder.name)
            if fields[0] in "ZX":
                continue
            parents[number], starts[number] = int(fields[1]), int(fields[19])
            if int(fields[3]) == pid:
                session.add(number)
    found = session | {one.pid for one in known if starts.get(one.pid) == one.start}
    while fresh := {n for n, parent in parents.items() if parent in found | {pid}} - found:
        found |= fresh
    return {Found(number, starts[number]) for number in found - {pid}}


def end(pid: int, known: Collection[Found] = ()) -> None:
    """Kill what a process has started, the known ones with their descendants, then its group.

    A process that calls this for itself ends here, since it is in the group that it leads.
    """
    for _ in range(SWEEPS):
        living = of(pid, known)
        for one in living:
            with contextlib.suppress(OSError):
                os.kill(one.pid, signal.SIGKILL)
        if not living:
            break
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
