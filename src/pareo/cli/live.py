"""How commands show results: a table at the end, and a live one on a terminal."""

import sys
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
def live(draw: Callable[Args, RenderableType]) -> Iterator[Callable[Args, None]]:
    """A function that draws its arguments on a terminal, and does nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda *args, **kwargs: None
        return
    # Drawn between turns only: a moving clock would take time from what is being measured.
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as screen:

        def show(*args: Args.args, **kwargs: Args.kwargs) -> None:
            screen.update(draw(*args, **kwargs), refresh=True)

        yield show
