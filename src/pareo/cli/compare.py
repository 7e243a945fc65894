"""`pareo compare`: what changed between two races, and whether the times did."""

from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pareo.errors import PareoError
from pareo.lab.experiment import records, results
from pareo.lab.experiment.result_diff import changes, verdicts
from pareo.lab.experiment.statistics import Verdict, has_ends, interval

COLOURS = {"faster": "green", "slower": "red", "cannot tell": "yellow"}


def compare(
    first: Annotated[
        str, typer.Argument(help="A number of `pareo history`, `last`, or a JSON file.")
    ],
    second: Annotated[str, typer.Argument(help="The race to compare with the first.")],
) -> None:
    """Show what changed between two races, and which contestants became faster or slower."""
    before, after = records.find(first), records.find(second)
    for name, result in ((first, before), (second, after)):
        if result["kind"] in results.KINDS:
            raise PareoError(f"compare expects two races; {name} is a {result['kind']}")
    console = Console()
    console.print(_changes(before, after))
    console.print(_times(before, after))
    console.print(
        "[dim]Seconds per epoch: median, 95 % interval. Verdicts at 99 %. The races ran at "
        "different times, so other load on the machine may cause a difference.[/]"
    )


def _changes(before: dict[str, Any], after: dict[str, Any]) -> Table | str:
    found = changes(before, after)
    if not found:
        return "Settings, versions and machine are the same."
    table = Table("changed", "first", "second", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for change in found:
        shown = ("-" if v is None else str(v) for v in (change.before, change.after))
        table.add_row(escape(change.field), *map(escape, shown))
    return table


def _times(before: dict[str, Any], after: dict[str, Any]) -> Table:
    table = Table("contestant", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("first", justify="right", no_wrap=True)
    table.add_column("second", justify="right", no_wrap=True)
    table.add_column("verdict")
    times = [{r["contestant"]: r["samples"] for r in result["rows"]} for result in (before, after)]
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
