"""Everything that a process has started, found and ended, however it tried to get away.

A process that calls `lead` has a session of its own, and on Linux whatever is orphaned below it
becomes its child: a daemon, too, that has left the session. What outlives a process that crashed is
found if it has not left the session.
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
    """A process; its start tells it from a later one with the same number."""

    pid: int
    start: int


def lead() -> None:
    """Give this process a session of its own, and make it the parent of orphans below it."""
    with contextlib.suppress(OSError):  # it leads a group already
        os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def of(pid: int, known: Collection[Found] = ()) -> set[Found]:
    """What a process has started that still runs: its session, and all descendants.

    Those of the known ones count as well. To be asked while the process is alive, or dead and not
    yet waited for. Empty where the system has no /proc.
    """
    parents: dict[int, int] = {}
    starts: dict[int, int] = {}
    session = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
            # Behind the name, which may hold anything: state, parent, group, session, ...
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
    """Kill what a process has started, those that are known with theirs, and at last its group.

    The process itself is in the group that it leads: this is the last that it does.
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
