"""Ctrl-C as a wish that is answered at the next good moment, and at once when it comes twice."""

import signal
import threading
from types import FrameType, TracebackType
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
        main = threading.current_thread() is threading.main_thread()
        # Someone who took SIGINT over, or ignores it as a shell's `&` does, keeps it so.
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, self._before)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
