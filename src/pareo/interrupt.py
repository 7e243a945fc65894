"""Handling Ctrl-C: at the next convenient moment, immediately, or in one process alone.

`Interrupt` lets a run end cleanly, `ImmediateInterrupt` is for code that measures time, and
`blocked` is for starting processes: a terminal sends the signal to these as well. `ENDINGS` are the
signals by which a system ends a process that may still save its work.
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any

ENDINGS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(SystemExit):
    """A signal of `ENDINGS` ended the process, after its work was saved."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)


class Interrupt:
    """A scope in which the first Ctrl-C only sets `asked`; a second one interrupts as usual.

    Python lets only the main thread handle signals: elsewhere the scope does nothing.

    Args:
        endings: other signals that are handled likewise, unless the program handles or ignores
            them (as `nohup` does) or is another program's worker; `signal` is the one that came.

    >>> with Interrupt() as interrupt:
    ...     signal.raise_signal(signal.SIGINT)
    ...     interrupt.asked
    True
    """

    def __init__(self, endings: tuple[signal.Signals, ...] = ()) -> None:
        self.asked = False
        self.signal: int | None = None
        self._before: Any = None
        self._endings = endings
        self._changed: list[signal.Signals] = []

    def __enter__(self) -> "Interrupt":
        if _is_ours(signal.default_int_handler):
            self._before = signal.signal(signal.SIGINT, self._ask)
        if self._endings and _may_end():
            free = [one for one in self._endings if signal.getsignal(one) == signal.SIG_DFL]
            for number in free:
                signal.signal(number, self._end)
                self._changed.append(number)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, self._before)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.asked, self.signal = True, number
        signal.signal(number, signal.SIG_DFL)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        for number in self._changed:
            signal.signal(number, signal.SIG_DFL)


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


def _may_end() -> bool:
    """Whether this thread may handle `ENDINGS`: a worker is ended by them, and so is a race."""
    main = threading.current_thread() is threading.main_thread()
    return main and multiprocessing.parent_process() is None and not _is_ours(ImmediateInterrupt)


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


def end_with_parent() -> None:
    """End this process when its parent has been killed: nobody waits for its work any more."""
    parent = multiprocessing.parent_process()
    if parent is not None:

        def wait() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=wait, daemon=True).start()


def report(number: int, rest: str) -> None:
    """Print which signal ended a run, unless the terminal has gone with it."""
    with suppress(OSError):
        print(f"pareo: stopped by {signal.Signals(number).name}{rest}", file=sys.stderr, flush=True)
