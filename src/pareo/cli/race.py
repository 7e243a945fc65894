"""`pareo race`: one network, every device and framework, a table with intervals and the floor."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from pareo.cli import race_table
from pareo.device import PRECISIONS, cores
from pareo.errors import PareoError
from pareo.lab import records, report
from pareo.lab.contestants.registry import chosen, usual
from pareo.lab.race import QUICK, Race, Rules, task_for


def race(
    network: Annotated[
        str, typer.Argument(help="One of those that `pareo networks` lists.")
    ] = "papers-cnn",
    batch: Annotated[int, typer.Option(min=1, help="Images per step.")] = 128,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Train so many.  [default: until times are known well]"),
    ] = None,
    contestants: Annotated[
        str | None, typer.Option(help="Names, as in pareo-compiled,torch-best.  [default: all]")
    ] = None,
    precision: Annotated[
        str, typer.Option(help="float32; on a GPU also tf32 or bfloat16.")
    ] = "float32",
    data: Annotated[
        str | None,
        typer.Option(
            help="As `pareo train --data` takes it: mnist, synthetic:CxHxW[:CLASSES[:COUNT]], a "
            "folder or an .npz file.  [default: mnist, or made-up images where it does not fit]"
        ),
    ] = None,
    target_accuracy: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Race until everyone has it on the test images: 0.95."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Short turns, three minutes in all.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(min=1, help="No round begins after so many.  [default: 600, quick 140]"),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads for everyone.  [default: all cores]")
    ] = None,
    together: Annotated[
        bool,
        typer.Option(
            "--together", help="Build everyone at once: sooner ready, but first calls take longer."
        ),
    ] = False,
    against: Annotated[
        str | None, typer.Option(help="Speedups against this row.  [default: the fastest peer]")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write every sample, and where, to this file.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Keep the result for `pareo history`.")
    ] = False,
) -> None:
    """Train one network on every device and in every framework, each beside its limit.

    Who does not compute the same as the others gets no time. The exit status is 1 where a
    contestant was refused or failed.
    """
    if precision not in PRECISIONS:
        raise PareoError(f"--precision expects one of {', '.join(PRECISIONS)}; got {precision!r}")
    task = task_for(network, batch, threads or cores(), source=data)
    entered = chosen(contestants.split(",") if contestants else usual(task))
    if against is not None and against not in entered:
        raise PareoError(f"--against expects one of {', '.join(entered)}; got {against!r}")
    for path in (json_file, html):
        if path is not None and not path.absolute().parent.is_dir():
            raise PareoError(f"{path}: its folder is not there")
    rules = replace(_rules(quick, epochs, target_accuracy, seconds), together=together)
    with _live() as watch:
        result = Race(task, entered, rules, precision, watch).run()
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)  # a file has no edge
    console.print(race_table.table(result, against, target_accuracy))
    for line in race_table.lines(result):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    _keep(result, json_file, html, save)
    if any(row["status"] in ("refused", "failed") for row in result["rows"]):
        raise typer.Exit(1)


def _rules(quick: bool, epochs: int | None, accuracy: float | None, seconds: float | None) -> Rules:
    rules = (QUICK if quick else Rules()).training(epochs, accuracy)
    return rules if seconds is None else replace(rules, seconds=seconds)


@contextmanager
def _live() -> Iterator[Callable[[Race], None]]:
    """Shows on a terminal who is running, the round, the figures so far and the time left."""
    if not sys.stderr.isatty():
        yield lambda race: None
        return
    # Drawn between turns only: a clock that moves would take time from whoever is running.
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:
        yield lambda race: live.update(race_table.running(race), refresh=True)


def _keep(result: dict[str, Any], json_file: Path | None, html: Path | None, save: bool) -> None:
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=1, allow_nan=False))
        print(f"result      {json_file}")
    if save:
        print(f"kept as     {records.save(result)}, see `pareo history`")
    if html is not None:
        report.write(result, html)
        print(f"report      {html.absolute()}")
