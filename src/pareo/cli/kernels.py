"""`pareo kernels`: which kernels a training step's time goes to, in every framework."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pareo.cli import live, options
from pareo.cli.output import end, finish, left_alone, outputs
from pareo.cli.tables import kernels as kernels_table
from pareo.device import PRECISIONS, cores
from pareo.lab.contestants.registry import chosen
from pareo.lab.experiment.tasks import task_for
from pareo.lab.kernels import chrome_trace
from pareo.lab.kernels.study import Study, usual


def kernels(
    network: options.Network = "papers-cnn",
    batch: options.Batch = 128,
    contestants: Annotated[
        str | None,
        typer.Option(help="Names, as in pareo-compiled,torch.", show_default="pareo, torch, jax"),
    ] = None,
    precision: options.Precision = "float32",
    rows: Annotated[int, typer.Option(min=0, help="Kernels in each table; 0 is all.")] = 12,
    threads: options.Threads = None,
    together: Annotated[
        bool, typer.Option("--together", help="Build everyone at once: sooner ready.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option(help="Write a Chrome trace, which ui.perfetto.dev opens.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write every kernel, and where, to this file.")
    ] = None,
    html: options.Html = None,
    save: options.Save = False,
) -> None:
    """Show which kernels a training step's time goes to, one table for each framework.

    Everyone passes the gate of a race first, and is timed as there. The exit status is 1 where a
    contestant was refused or failed, or nobody could be tried.
    """
    options.check_choice("--precision", precision, PRECISIONS)
    options.check_folders(trace, json_file, html)
    task = task_for(network, batch, threads or cores())
    named = chosen(options.named(contestants) or usual())
    with _progress() as say:
        study = Study(task, named, precision, together=together, say=say)
        result = study.run()
    if study.interrupted:
        trace, json_file, html = left_alone(trace, json_file, html)
    wanted = outputs(result, json_file, html, save and not study.interrupted)
    if trace is not None:
        wanted.insert(0, partial(_traced, study, trace))

    def show() -> None:
        console = live.console(160)
        for part in kernels_table.everything(result, rows):
            console.print(part, highlight=False, soft_wrap=isinstance(part, str))

    written = finish(show, wanted)
    if study.interrupted:
        print("Interrupted: what was not looked at says so.")
        raise typer.Exit(130)
    end(result["rows"], written)


def _traced(study: Study, file: Path) -> str:
    chrome_trace.write(study.profiles, file)
    return f"trace       {file.absolute()}"


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Shows on a terminal what is being done."""
    if not sys.stderr.isatty():
        yield lambda doing: None
        return
    # A still line, not a spinner: what moves would take time from whoever is measured.
    console = Console(stderr=True)
    yield lambda doing: console.print(f"[dim]{doing}[/]", highlight=False)
