"""`pareo history`: the saved results."""

import json
from functools import singledispatch
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pareo.cli.tables.narrow import TIGHT
from pareo.lab.arena.result import ArenaResult
from pareo.lab.arena.summary import distribution
from pareo.lab.experiment import records, results
from pareo.lab.experiment.entry import ranked
from pareo.lab.experiment.results import Result
from pareo.lab.ops.result import OpsResult
from pareo.lab.parallel.result import ParallelResult
from pareo.lab.race.result import RaceResult
from pareo.lab.replication.result import PaperResult
from pareo.lab.sweep.advice import answer
from pareo.lab.sweep.result import SweepResult
from pareo.lab.tune.result import TuneResult


def history(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every result, with its samples, as JSON.")
    ] = False,
) -> None:
    """List the results saved with --save, the latest last."""
    saved = records.everything()
    if as_json:
        every = [{"number": number, **results.plain(result)} for number, result in saved]
        print(json.dumps(every, indent=1))
        return
    console = Console()
    if not saved:
        console.print(f"Nothing is saved in {escape(str(records.place()))} yet.", soft_wrap=True)
        return
    table = Table(**TIGHT)
    for head in ("", "when", "network", "batch", "precision", "fastest", "s/epoch"):
        right, long = head in ("", "batch", "s/epoch"), head in ("network", "fastest")
        table.add_column(head, justify="right" if right else "left", no_wrap=not long)
    for number, result in saved:
        name, seconds = _best(result)
        batch = str(getattr(result, "batch", result.kind))
        precision = getattr(result, "precision", "")
        shown = (result.moment, result.network, batch, precision, name)
        table.add_row(str(number), *map(escape, shown), seconds)
    console.print(table)
    console.print("[dim]pareo compare A B compares two races; pareo report A writes a report.[/]")


@singledispatch
def _best(result: Result) -> tuple[str, str]:
    """What is best in a result, and its seconds per epoch where that is what was measured."""
    raise NotImplementedError(f"a result of {result.kind}")


@_best.register
def _(result: RaceResult) -> tuple[str, str]:
    timed = ranked(result.rows)
    return (timed[0].contestant, f"{timed[0].median:.4g}") if timed else ("nothing was timed", "")


@_best.register
def _(result: SweepResult) -> tuple[str, str]:
    best = answer(result)
    return (f"{best.contestant}, batch {best.batch}" if best else "nothing was timed"), ""


@_best.register
def _(result: OpsResult) -> tuple[str, str]:
    return f"{sum(bool(cell.hot) for cell in result.rows)} cells timed", ""


@_best.register
def _(result: ParallelResult) -> tuple[str, str]:
    timed = {row.label: row.seconds for row in result.rows if row.seconds}
    name = min(timed, key=timed.__getitem__, default="nothing was timed")
    return name, f"{timed[name]:.4g}" if timed else ""


@_best.register
def _(result: TuneResult) -> tuple[str, str]:
    best = result.best_trial
    return (f"trial {best.number}, {best.accuracy:.2%}" if best else "no trial finished"), ""


@_best.register
def _(result: ArenaResult) -> tuple[str, str]:
    found = distribution(result.bouts)
    if found is None:
        return "nothing was compared", ""
    return f"best peer / pareo {found.mean:.2f}, {found.share:.0%} won", ""


@_best.register
def _(result: PaperResult) -> tuple[str, str]:
    both = sum(line.ratio is not None for line in result.lines)
    return f"{both} figures beside the paper's", ""
