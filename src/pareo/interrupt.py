"""Handling Ctrl-C: at the next convenient moment, immediately, or in one process alone.

`Interrupt` lets a run end cleanly, `ImmediateInterrupt` is for code that measures time, and
`blocked` is for starting processes: a terminal sends the signal to these as well.
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


class ImmediateInterrupt:
    """A scope in which Ctrl-C always raises KeyboardInterrupt at once.

    An `Interrupt` inside does not catch it: training that ends early and cleanly would look like
    training that was fast. If Python drops the exception, because it was raised while an object was
    being collected, it is raised again at the end.

    >>> try:
    ...     with ImmediateInterrupt(), Interrupt() as interrupt:
    ...         signal.raise_signal(signal.SIGINT)
    ... except KeyboardInterrupt:
    ...     interrupt.asked
    False
    """

    def __init__(self) -> None:
        self._heard = False
        self._before: Any = None

    def __enter__(self) -> "ImmediateInterrupt":
        if _is_ours(signal.default_int_handler):
            self._before = signal.signal(signal.SIGINT, self.interrupt)
        return self

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        self._heard = True
        raise KeyboardInterrupt

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self._heard and kind is not KeyboardInterrupt:
            raise KeyboardInterrupt


class _Held(Interrupt):
    """An `Interrupt` that takes precedence over an `ImmediateInterrupt`, for a few calls."""

    def __enter__(self) -> "_Held":
        if _is_ours(signal.default_int_handler, ImmediateInterrupt):
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self


def _is_ours(*known: Any) -> bool:
    """Whether this thread may handle SIGINT and the present handler is one of `known`.

    A handler of other code stays in place, and so does SIG_IGN, which a shell's `&` sets.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    now = signal.getsignal(signal.SIGINT)
    return now in known or type(getattr(now, "__self__", None)) in known


@contextmanager
def blocked() -> Iterator[None]:
    """A scope that delays Ctrl-C to its end, for starting a process, which then calls `ignore`.

    The process inherits the signal mask. The mask is this thread's alone: another thread may take
    the signal, and Python would still interrupt this one before the process has its orders. So a
    handler catches the signal as well.
    """
    # Otherwise it would start with the first process, and unblock the signal.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _Held() as interrupt:
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if interrupt.asked:
        raise KeyboardInterrupt


def ignore() -> None:
    """Ignore Ctrl-C, in a process whose parent handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
