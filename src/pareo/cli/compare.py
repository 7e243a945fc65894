"""`pareo compare`: what changed between two races, and whether the times did."""

import re
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pareo.cli import options
from pareo.cli.tables.narrow import TIGHT
from pareo.errors import PareoError
from pareo.lab.experiment import records
from pareo.lab.experiment.statistics import Verdict, has_ends, interval
from pareo.lab.race.relative import relative
from pareo.lab.race.result import RaceResult
from pareo.lab.race.result_diff import changes, verdicts

COLOURS = {"faster": "green", "slower": "red", "cannot tell": "yellow"}


def compare(
    first: Annotated[
        str, typer.Argument(help="A number of `pareo history`, `last`, or a JSON file.")
    ],
    second: Annotated[str, typer.Argument(help="The race to compare with the first.")],
    fail_over: Annotated[
        str | None,
        typer.Option(
            help="Exit with status 1 if one became slower by more than this, such as 3%."
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--contestants", help="Names separated by commas that --fail-over is about.",
            show_default="pareo's own",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Compare times relative to this contestant of the same race, which cancels a "
            "slower machine."
        ),
    ] = None,
) -> None:  # fmt: skip
    """Show what changed between two races, and which contestants became faster or slower.

    With --fail-over the exit status is 1 if a contestant is slower by more than the limit with 99 %
    confidence, or if it cannot be compared: on another machine only ratios (--against) can be.
    """
    most = None if fail_over is None else share(fail_over)
    before, after = _race(first), _race(second)
    if against is not None:
        before, after = (relative(race, against) for race in (before, after))
    console = Console()
    console.print(_changes(before, after))
    console.print(_times(before, after))
    unit = "Seconds per epoch" if against is None else f"Multiples of {escape(against)}"
    console.print(
        f"[dim]{unit}: median, 95 % interval. Verdicts at 99 %. The races ran at "
        "different times, so other load on the machine may cause a difference.[/]"
    )
    if most is not None:
        wrong = elsewhere(before, after) if against is None else []
        wrong += failures(before, after, most, options.named(only))
        for line in wrong:
            print(line)
        if wrong:
            raise typer.Exit(1)
        print(f"Nothing is slower by more than {most * 100:.3g} % with 99 % confidence.")


def share(text: str) -> float:
    """The share that --fail-over names.

    >>> share("3%"), share("0.5 %")
    (0.03, 0.005)
    >>> share("three")
    Traceback (most recent call last):
    pareo.errors.PareoError: --fail-over expects a percentage such as 3%; got 'three'
    """
    found = re.fullmatch(r"\s*(\d{1,4}(?:\.\d{1,6})?)\s*%\s*", text)
    if found is None:
        raise PareoError(f"--fail-over expects a percentage such as 3%; got {text!r}")
    return float(found[1]) / 100


def elsewhere(before: RaceResult, after: RaceResult) -> list[str]:
    """Why times cannot be compared, in sentences: another machine, or other threads."""
    places = [(race.machine.name, f"{race.threads} threads") for race in (before, after)]
    changed = [f"{one}, not {other}" for one, other in zip(*places, strict=True) if one != other]
    return [
        f"--fail-over: times cannot be compared: {change}; --against compares ratios"
        for change in changed
    ]


def failures(
    before: RaceResult, after: RaceResult, most: float, only: list[str] | None = None
) -> list[str]:
    """Why a comparison fails, in sentences: who is slower by more than `most`, or has no verdict.

    Without names, all of pareo's own contestants count that were timed in the first race.
    """
    found = verdicts(before, after)
    timed = [row.contestant for row in before.rows if row.ours and row.samples]
    names = only or timed
    if not names:
        return ["--fail-over: no contestant of pareo was timed in the first race"]
    wrong = []
    for name in names:
        verdict = found.get(name, "in neither race")
        if not isinstance(verdict, Verdict):
            wrong.append(f"--fail-over: {name} cannot be compared: {verdict}")
        elif not has_ends(verdict.low, verdict.high):
            wrong.append(f"--fail-over: {name} cannot be compared: too few independent samples")
        elif verdict.low > 1 + most:
            more = f"{(verdict.ratio - 1) * 100:.2g} %"
            least = f"{(verdict.low - 1) * 100:.2g} %"
            wrong.append(f"--fail-over: {name} is slower by {more}, and by {least} at least")
    return wrong


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
