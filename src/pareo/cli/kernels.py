"""`pareo kernels`: which kernels a training step's time goes to, in every framework."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pareo.cli import kernels_table
from pareo.device import PRECISIONS, cores
from pareo.errors import PareoError
from pareo.lab import records
from pareo.lab.contestants.registry import chosen
from pareo.lab.kernels import chrome_trace
from pareo.lab.kernels.study import Study, usual
from pareo.lab.race import task_for
from pareo.lab.report import kernels as report


def kernels(
    network: Annotated[
        str, typer.Argument(help="One of those that `pareo networks` lists.")
    ] = "papers-cnn",
    batch: Annotated[int, typer.Option(min=1, help="Images per step.")] = 128,
    contestants: Annotated[
        str | None,
        typer.Option(help="Names, as in pareo-compiled,torch.  [default: pareo, torch, jax]"),
    ] = None,
    precision: Annotated[
        str, typer.Option(help="float32; on a GPU also tf32 or bfloat16.")
    ] = "float32",
    rows: Annotated[int, typer.Option(min=0, help="Kernels in each table; 0 is all.")] = 12,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads for everyone.  [default: all cores]")
    ] = None,
    together: Annotated[
        bool, typer.Option("--together", help="Build everyone at once: sooner ready.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option(help="Write a Chrome trace, which ui.perfetto.dev opens.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write every kernel, and where, to this file.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Keep the result for `pareo history`.")
    ] = False,
) -> None:
    """Show which kernels a training step's time goes to, one table for each framework.

    Everyone passes the gate of a race first, and is timed as there. The exit status is 1 where a
    contestant was refused or failed.
    """
    if precision not in PRECISIONS:
        raise PareoError(f"--precision expects one of {', '.join(PRECISIONS)}; got {precision!r}")
    for path in (trace, json_file, html):
        if path is not None and not path.absolute().parent.is_dir():
            raise PareoError(f"{path}: its folder is not there")
    task = task_for(network, batch, threads or cores())
    named = chosen(contestants.split(",") if contestants else usual())
    with _progress() as say:
        study = Study(task, named, precision, together=together, say=say)
        result = study.run()
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)  # a file has no edge
    for part in kernels_table.everything(result, rows):
        console.print(part, highlight=False, soft_wrap=isinstance(part, str))
    if trace is not None:
        chrome_trace.write(study.profiles, trace)
        print(f"trace       {trace.absolute()}")
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=1, allow_nan=False))
        print(f"result      {json_file}")
    if save:
        print(f"kept as     {records.save(result)}, see `pareo history`")
    if html is not None:
        report.write(result, html)
        print(f"report      {html.absolute()}")
    if any(row["status"] in ("refused", "failed") for row in result["rows"]):
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Shows on a terminal what is being done."""
    if not sys.stderr.isatty():
        yield lambda doing: None
        return
    # A still line, not a spinner: what moves would take time from whoever is measured.
    console = Console(stderr=True)
    yield lambda doing: console.print(f"[dim]{doing}[/]", highlight=False)
