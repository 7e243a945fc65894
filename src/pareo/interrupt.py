"""Ctrl-C as a wish that is answered at the next good moment, and at once when it comes twice.

Or always at once, for those who time others. And for one process alone: those that it starts get
the signal as well, from a terminal.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any


class Interrupt:
    """A scope in which the first Ctrl-C only sets `asked`; a second one interrupts as usual.

    Python lets only the main thread handle signals: elsewhere the scope does nothing.

    >>> with Interrupt() as interrupt:
    ...     signal.raise_signal(signal.SIGINT)
    ...     interrupt.asked
    True
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> "Interrupt":
        if _is_ours(signal.default_int_handler):
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, self._before)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


class AtOnce:
    """A scope that a Ctrl-C ends for certain, with a KeyboardInterrupt as soon as it comes.

    No `Interrupt` within takes it as a wish: training that ends early and well would look like
    training that was fast. One that Python drops, because it was raised while an object was
    collected, is raised again at the end.

    >>> try:
    ...     with AtOnce(), Interrupt() as interrupt:
    ...         signal.raise_signal(signal.SIGINT)
    ... except KeyboardInterrupt:
    ...     interrupt.asked
    False
    """

    def __init__(self) -> None:
        self._heard = False
        self._before: Any = None

    def __enter__(self) -> "AtOnce":
        if _is_ours(signal.default_int_handler):
            self._before = signal.signal(signal.SIGINT, self.interrupt)
        return self

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signal."""
        self._heard = True
        raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self._heard and kind is not KeyboardInterrupt:
            raise KeyboardInterrupt


class _Held(Interrupt):
    """An `Interrupt` that an `AtOnce` around it gives way to: for a few calls, not for a run."""

    def __enter__(self) -> "_Held":
        if _is_ours(signal.default_int_handler, AtOnce):
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self


def _is_ours(*known: Any) -> bool:
    """Whether this thread may handle SIGINT, and whoever handles it now is known.

    Someone else who took it over, or ignores it as a shell's `&` does, keeps it so.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    now = signal.getsignal(signal.SIGINT)
    return now in known or type(getattr(now, "__self__", None)) in known


@contextmanager
def deaf() -> Iterator[None]:
    """Ctrl-C waits; a process that is started here does not hear it, and is to call `ignore`.

    The mask is what that process inherits. It is this thread's alone: another one may take the
    signal, and Python would interrupt this one all the same, between a process and its orders.
    """
    resource_tracker.ensure_running()  # or it starts with the first process, and unblocks it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _Held() as interrupt:
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if interrupt.asked:
        raise KeyboardInterrupt


def ignore() -> None:
    """For a process that was started by another: Ctrl-C is for that one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
