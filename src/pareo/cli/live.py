"""How commands show what they measure: a table at the end, and a live one on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec

from rich.console import Console, RenderableType
from rich.live import Live

News = ParamSpec("News")


def console(width: int) -> Console:
    """The terminal, as wide as it is; `width` is for a file, which has no edge."""
    found = Console()
    return found if found.is_terminal else Console(width=width)


@contextmanager
def live(picture: Callable[News, RenderableType]) -> Iterator[Callable[News, None]]:
    """A function that shows a picture of the news on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda *args, **kwargs: None
        return
    # Drawn between turns only: a clock that moves would take time from whoever is running.
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as screen:

        def show(*args: News.args, **kwargs: News.kwargs) -> None:
            screen.update(picture(*args, **kwargs), refresh=True)

        yield show
