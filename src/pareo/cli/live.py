"""How commands show results: a table at the end; until then a table that grows, or lines in a file.

A person at a terminal sees the table. Where standard error goes to a file or a pipe, there is a
line for each phase, so that silence never looks like a hang.
"""

import re
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec

from rich.console import Console, RenderableType
from rich.live import Live

from pareo.lab.experiment.statistics import busy
from pareo.machine import idle_cores

Args = ParamSpec("Args")
EVERY = 5.0  # seconds between lines that differ only in their numbers
QUIET = 30.0  # seconds after which the last line is repeated, as a sign of life


def console(width: int) -> Console:
    """The terminal with its own width, or `width` columns where output goes to a file."""
    found = Console()
    return found if found.is_terminal else Console(width=width)


def print_line(console: Console, line: str) -> None:
    """Print a sentence: wrapped between words on a terminal, as one line in a file."""
    console.print(line, markup=False, highlight=False, soft_wrap=not console.is_terminal)


def complain(sentence: str) -> None:
    """Print a sentence to standard error: wrapped between words on a terminal."""
    print(wrapped(f"pareo: {sentence}", sys.stderr.isatty()), file=sys.stderr, flush=True)


def wrapped(text: str, terminal: bool, width: int | None = None) -> str:
    """A text for a terminal of a width, whose words stay whole; the text itself elsewhere.

    >>> wrapped("no contestant is called torch-last", True, 26)
    'no contestant is called\\ntorch-last'
    >>> wrapped("no contestant is called torch-last", False, 26)
    'no contestant is called torch-last'
    """
    if not terminal:
        return text
    columns = width or shutil.get_terminal_size().columns
    return textwrap.fill(text, columns, break_long_words=False, break_on_hyphens=False)


def say_if_busy(threads: int, seconds: float = 0.5) -> None:
    """Say at the start that other programs are running, where so many threads have no core left."""
    if sentence := busy(threads, idle_cores(seconds)):
        complain(sentence)


class Log:
    """Lines on standard error that say what is under way, with the seconds since the start.

    A line that differs from an earlier one in its numbers alone is printed after `every` seconds.

    >>> log = Log()
    >>> log.is_due("round 1, torch is running"), log.is_due("round 2, torch is running")
    (True, False)
    """

    def __init__(self, every: float = EVERY) -> None:
        self._every, self._began = every, time.monotonic()
        self._printed: float | None = None
        self._known: set[str] = set()
        self._last = ""

    def __call__(self, doing: str) -> None:
        """Print what is under way now, if it is due."""
        self._last = doing
        if self.is_due(doing):
            self._print(doing)

    def _print(self, text: str) -> None:
        seconds = time.monotonic() - self._began
        print(f"{seconds:6.0f} s  {text}", file=sys.stderr, flush=True)

    @contextmanager
    def alive(self, quiet: float = QUIET) -> Iterator[None]:
        """Say what is still under way whenever nothing was printed for so many seconds."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(quiet / 10):
                if self._last and time.monotonic() - (self._printed or 0.0) >= quiet:
                    self._printed = time.monotonic()
                    self._print(f"still: {self._last}")

        thread = threading.Thread(target=watch, name="signs of life", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def is_due(self, doing: str) -> bool:
        """Whether this would be printed now."""
        words, now = re.sub(r"\d+", "", doing), time.monotonic()
        soon = self._printed is not None and now - self._printed < self._every
        if not doing or (soon and words in self._known):
            return False
        self._known.add(words)
        self._printed = now
        return True


@contextmanager
def display(
    draw: Callable[Args, RenderableType], line: Callable[Args, str], every: float = 0.0
) -> Iterator[Callable[Args, None]]:
    """A function that shows what `draw` returns on a terminal, and logs what `line` does elsewhere.

    Calls less than `every` seconds after the last drawing are ignored.
    """
    if not sys.stderr.isatty():
        log = Log()
        with log.alive():
            yield lambda *args, **kwargs: log(line(*args, **kwargs))
        return
    drawn = -every
    # Drawn between turns only: a moving clock would take time from what is being measured.
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as screen:

        def show(*args: Args.args, **kwargs: Args.kwargs) -> None:
            nonlocal drawn
            if time.monotonic() - drawn >= every:
                screen.update(draw(*args, **kwargs), refresh=True)
                drawn = time.monotonic()

        yield show


def activity() -> Callable[[str], None]:
    """A function that prints the current activity."""
    if not sys.stderr.isatty():
        return Log()
    # A static line, not a spinner: it would take time from what is being measured.
    terminal = Console(stderr=True)
    return lambda doing: terminal.print(f"[dim]{doing}[/]", highlight=False)
