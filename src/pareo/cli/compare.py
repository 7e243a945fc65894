"""`pareo compare`: what changed between two races, and whether the times did."""

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pareo.cli.tables.narrow import TIGHT
from pareo.errors import PareoError
from pareo.lab.experiment import records
from pareo.lab.experiment.statistics import Verdict, has_ends, interval
from pareo.lab.race.result import RaceResult
from pareo.lab.race.result_diff import changes, verdicts

COLOURS = {"faster": "green", "slower": "red", "cannot tell": "yellow"}


def compare(
    first: Annotated[
        str, typer.Argument(help="A number of `pareo history`, `last`, or a JSON file.")
    ],
    second: Annotated[str, typer.Argument(help="The race to compare with the first.")],
) -> None:
    """Show what changed between two races, and which contestants became faster or slower."""
    before, after = _race(first), _race(second)
    console = Console()
    console.print(_changes(before, after))
    console.print(_times(before, after))
    console.print(
        "[dim]Seconds per epoch: median, 95 % interval. Verdicts at 99 %. The races ran at "
        "different times, so other load on the machine may cause a difference.[/]"
    )


def _race(name: str) -> RaceResult:
    found = records.find(name)
    if not isinstance(found, RaceResult):
        raise PareoError(f"compare expects two races; {name} is a {found.kind}")
    return found


def _changes(before: RaceResult, after: RaceResult) -> Table | str:
    found = changes(before, after)
    if not found:
        return "Settings, versions and machine are the same."
    table = Table("changed", "first", "second", **TIGHT)
    for change in found:
        shown = ("-" if v is None else str(v) for v in (change.before, change.after))
        table.add_row(escape(change.field), *map(escape, shown))
    return table


def _times(before: RaceResult, after: RaceResult) -> Table:
    table = Table("contestant", **TIGHT)
    table.add_column("first", justify="right", no_wrap=True)
    table.add_column("second", justify="right", no_wrap=True)
    table.add_column("verdict")
    times = [{row.contestant: row.samples for row in result.rows} for result in (before, after)]
    for name, verdict in verdicts(before, after).items():
        colour = COLOURS[verdict.word] if isinstance(verdict, Verdict) else "dim"
        seconds = (_seconds(samples.get(name, [])) for samples in times)
        table.add_row(escape(name), *seconds, f"[{colour}]{escape(str(verdict))}[/]")
    return table


def _seconds(samples: list[float]) -> str:
    """A median and its interval.

    >>> _seconds([2.0, 2.1, 1.9, 2.0, 2.2, 2.0]), _seconds([2.0]), _seconds([])
    ('2.000 (1.878 to 2.249)', '2.000 (cannot tell)', '')
    """
    if not samples:
        return ""
    low, middle, high = interval(samples)
    known = f"{low:.3f} to {high:.3f}" if has_ends(low, high) else "cannot tell"
    return f"{middle:.3f} ({known})"
