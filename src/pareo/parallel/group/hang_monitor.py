"""Ends worker processes that were stopped or that hang, so that nobody waits for them for ever.

A worker that computes may take any time. A worker that does not compute, is not waiting for work or
for other workers, and stays so for ten minutes will not continue: it is deadlocked, or waits for a
file system or a device that does not answer. A worker that was stopped (SIGSTOP) is ended sooner.
"""

import contextlib
import os
import threading
from collections.abc import Callable
from math import isfinite
from multiprocessing.process import BaseProcess
from pathlib import Path

from pareo.errors import PareoError

VARIABLE = "PAREO_WORKER_TIMEOUT"
TIMEOUT = 600.0  # seconds in which a worker does nothing
STOPPED = 30.0  # seconds in which a worker is stopped; the user may continue it before
POLL = 0.5  # seconds between two looks
BUSY = 2  # ticks of processor time between two looks: one who only polls uses fewer

Waits = Callable[[], bool]


def timeout() -> float:
    """The seconds after which a worker that does nothing is ended; 0 if it never is."""
    text = os.environ.get(VARIABLE, "").strip()
    try:
        seconds = float(text) if text else TIMEOUT
    except ValueError:
        seconds = -1.0
    if not (isfinite(seconds) and seconds >= 0):
        raise PareoError(f"{VARIABLE} is a number of seconds, or 0 for no limit; got {text!r}")
    return seconds


class HangMonitor:
    """Watches processes in a thread, until `stop`.

    The time in which this process is itself stopped, as by Ctrl-Z, does not count.
    """

    def __init__(self) -> None:
        self._timeout = timeout()
        self._watched: dict[BaseProcess, _Watched] = {}
        self._reasons: dict[BaseProcess, str] = {}
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, process: BaseProcess, waits: Waits) -> None:
        """Watch a process; `waits` tells whether it waits for others now, for any time."""
        with self._lock:
            self._watched[process] = _Watched(waits)
        if self._thread is None and self._timeout:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def forget(self, process: BaseProcess) -> None:
        """Watch a process no longer, because it has ended."""
        with self._lock:
            self._watched.pop(process, None)

    def reason(self, process: BaseProcess) -> str | None:
        """Why a process was ended; None if it ended in another way."""
        return self._reasons.get(process)

    def stop(self) -> None:
        """Watch no process any longer."""
        self._end.set()

    def _run(self) -> None:
        while not self._end.wait(POLL):
            with self._lock:
                for process, watched in list(self._watched.items()):
                    reason = watched.look(process.pid or 0, self._timeout)
                    if reason is not None:
                        self._reasons[process] = reason
                        del self._watched[process]
                        process.kill()


class _Watched:
    """What is known of one process; each look counts as `POLL` seconds, however late it is."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._ticks = 0
        self._stopped = self._silent = 0.0

    def look(self, pid: int, limit: float) -> str | None:
        """Look at the process once more; return why it must be ended, if it must."""
        states, ticks = _threads(pid)
        is_stopped = bool(states) and all(state == "T" for state in states)
        is_busy = "R" in states or ticks - self._ticks >= BUSY or not states
        self._ticks = ticks
        self._stopped = self._stopped + POLL if is_stopped else 0.0
        self._silent = 0.0 if is_stopped or is_busy or self._waits() else self._silent + POLL
        if self._stopped >= min(STOPPED, limit):
            return f"the process was stopped (SIGSTOP) for {self._stopped:.0f} s and was ended"
        if self._silent >= limit:
            return f"the process did nothing for {limit:g} s and was ended ({VARIABLE})"
        return None


def _threads(pid: int) -> tuple[list[str], int]:
    """The states of a process's threads and its processor time; nothing where there is no /proc."""
    states, ticks = [], 0
    for folder in Path(f"/proc/{pid}/task").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
            # After the name, which may hold anything: state, parent, ..., user and system time.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            states.append(fields[0])
            ticks += int(fields[11]) + int(fields[12])
    return states, ticks
