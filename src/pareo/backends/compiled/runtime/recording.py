"""What compiled functions a program calls, and how its work is split, recorded for `replay`.

A kernel is Python that works out sizes, cuts arrays, and calls compiled functions. For the same
arrays it does the same each time, so a `Recording` notes the calls once, and `replay` repeats them
without Python. While a thread records, everything runs in that thread: the parts of split work one
after the other, each noted as a part of its own.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Operation:
    """A call of a compiled function.

    function:  its address
    thunk:     the address of the function that calls it with arguments from memory
    words:     the arguments
    expected:  the truth that the call must return for the recording to hold, or None
    held:      what keeps the memory of arguments and machine code alive
    """

    function: int
    thunk: int
    words: tuple[int, ...]
    expected: bool | None
    held: tuple[Any, ...]


Part = list[Operation]  # calls that one thread makes, one after the other
Phase = list[Part]  # parts that threads may run at the same time


@dataclass
class Recording:
    """The calls of compiled functions that one thread makes while this is the active recording."""

    phases: list[Phase] = field(default_factory=list)
    refused: str = ""  # why what was done cannot be repeated; empty where it can
    _part: Part | None = None  # of split work

    def note(self, operation: Operation) -> None:
        """Add a call to the part at hand."""
        if self._part is None:
            if not self.phases or len(self.phases[-1]) != 1:
                self.phases.append([[]])
            self.phases[-1][0].append(operation)
        else:
            self._part.append(operation)

    def add(self, phase: Phase) -> None:
        """Add work that is split without Python, and has been done."""
        self.phases.append(phase)

    def refuse(self, reason: str) -> None:
        """Say that what is being done changes arrays in a way that no call shows."""
        self.refused = self.refused or reason

    def split(self, parts: Sequence[Callable[[], object]]) -> None:
        """Run the parts of some work one after the other, as one phase."""
        if self._part is not None:
            raise RuntimeError("work inside split work is not split again")
        phase: Phase = []
        for run in parts:
            self._part = []
            try:
                run()
            finally:
                phase.append(self._part)
                self._part = None
        self.phases.append(phase)


_active: Recording | None = None
_thread = 0
_lock = threading.Lock()


def active() -> Recording | None:
    """The recording of this thread, if it is recording."""
    return _active if _active is not None and threading.get_ident() == _thread else None


def is_any() -> bool:
    """Whether any thread is recording."""
    return _active is not None


def refuse(reason: str) -> None:
    """Where this thread is recording: what follows cannot be repeated (see `Recording.refuse`)."""
    recording = active()
    if recording is not None:
        recording.refuse(reason)


@contextmanager
def begun() -> Iterator[Recording | None]:
    """A scope in which this thread has a recording; None where another thread has one."""
    global _active, _thread
    if not _lock.acquire(blocking=False):
        yield None
        return
    try:
        _active, _thread = Recording(), threading.get_ident()
        yield _active
    finally:
        _active = None
        _lock.release()


if hasattr(os, "register_at_fork"):  # a thread that had it does not exist in the child
    os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
