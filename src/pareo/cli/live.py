"""How commands show results: a table at the end, and progress on a terminal."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec

from rich.console import Console, RenderableType
from rich.live import Live

Args = ParamSpec("Args")


def console(width: int) -> Console:
    """The terminal with its own width, or `width` columns where output goes to a file."""
    found = Console()
    return found if found.is_terminal else Console(width=width)


@contextmanager
def display(
    draw: Callable[Args, RenderableType], every: float = 0.0
) -> Iterator[Callable[Args, None]]:
    """A function that shows what `draw` returns on a terminal, and does nothing elsewhere.

    Calls less than `every` seconds after the last drawing are ignored.
    """
    if not sys.stderr.isatty():
        yield lambda *args, **kwargs: None
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
    """A function that prints the current activity on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda doing: None
    # A static line, not a spinner: it would take time from what is being measured.
    terminal = Console(stderr=True)
    return lambda doing: terminal.print(f"[dim]{doing}[/]", highlight=False)
