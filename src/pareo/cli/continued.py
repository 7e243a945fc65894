"""Commands that can be continued after an interruption: `pareo sweep` and `pareo arena`."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import typer
from rich.console import RenderableType

from pareo.cli import live
from pareo.cli.output import finish, not_existing, outputs
from pareo.lab.experiment.results import Result
from pareo.lab.sweep.journal import NotWritten

WIDTH = 170  # columns, where output goes to a file
R = TypeVar("R", bound=Result)
R_co = TypeVar("R_co", bound=Result, covariant=True)


class UnderWay(Protocol[R_co]):
    """A measurement with a journal."""

    def run(self, watch: Callable[[Any], None] = ...) -> R_co:
        """Do what is not done yet."""

    def result(self) -> R_co:
        """Everything that is known so far."""

    def finish(self) -> None:
        """Forget the journal."""


def run_to_end(
    under_way: UnderWay[R],
    watching: AbstractContextManager[Callable[[Any], None]],
    show: Callable[[R], None],
    has_times: Callable[[R], bool],
    json_file: Path | None,
    html: Path | None,
    save: bool,
) -> R:
    """Run, show and write the result; of an interrupted run, the part that is finished.

    Files that exist are not replaced by part of a result. The journal stays until all is written.
    """
    ended: BaseException | None = None
    try:
        with watching as watch:
            result = under_way.run(watch)
    except (KeyboardInterrupt, NotWritten) as error:
        result, ended = under_way.result(), error
        json_file, html = not_existing(json_file, html) if has_times(result) else (None, None)
    written = finish(lambda: show(result), outputs(result, json_file, html, save and ended is None))
    if isinstance(ended, KeyboardInterrupt):
        print("Interrupted: run the same command again to continue.")
        raise typer.Exit(130)
    if ended:
        raise ended
    if not written:  # the same command will write it again
        raise typer.Exit(1)
    under_way.finish()
    return result


def show_parts(tables: Iterable[RenderableType | None], lines: Iterable[str]) -> None:
    """Print tables, those that there are, and lines below them."""
    console = live.console(WIDTH)
    for table in tables:
        if table is not None:
            console.print(table)
    for line in lines:
        live.print_line(console, line)
