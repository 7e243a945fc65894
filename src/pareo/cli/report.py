"""`pareo report`: draw a result that was kept, or one in a JSON file; or several sweeps as one."""

from pathlib import Path
from typing import Annotated

import typer

from pareo.cli.output import draw
from pareo.errors import DataError
from pareo.lab.experiment import records
from pareo.lab.experiment.results import Result
from pareo.lab.sweep.join import together
from pareo.lab.sweep.result import Sweep


def report(
    which: Annotated[
        list[str],
        typer.Argument(
            help="A number of `pareo history`, `last`, or a file; or several, of sweeps."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where to.",
            show_default="beside the file, pareo-result-NUMBER.html, or pareo-sweeps-FIRST.html",
        ),
    ] = None,
) -> None:
    """Write the report of any result: one HTML file that needs no network.

    Several sweeps of one network in one precision, on one machine, make one report; where two have
    timed the same, the later one is drawn.
    """
    result = _found(which)
    place = out or beside(which)
    for name in which:
        if not _number(name) and place.exists() and place.samefile(name):
            raise DataError(f"{name}: the report would replace it; choose another --out")
    print(draw(result, place))


def beside(which: list[str]) -> Path:
    """Where a report goes by default, which the words of the command alone decide.

    What is in a file may come from anyone, so no part of a path is taken from it.

    >>> beside(["runs/a.json"]), beside(["3"]), beside(["runs/a.json", "b.json"])
    (PosixPath('runs/a.html'), PosixPath('pareo-result-3.html'), PosixPath('pareo-sweeps-a.html'))
    """
    first = which[0]
    if len(which) > 1:  # one of several files is beside none of them
        return Path(f"pareo-sweeps-{Path(first).stem}.html")
    return (
        Path(f"pareo-result-{first}.html") if _number(first) else Path(first).with_suffix(".html")
    )


def _number(name: str) -> bool:
    """Whether a word names a kept result, and not a file."""
    return name == "last" or records.NUMBER.fullmatch(name) is not None


def _found(which: list[str]) -> Result:
    found = {name: records.find(name) for name in which}
    if len(found) == 1:
        return found[which[0]]
    sweeps = {}
    for name, result in found.items():
        if not isinstance(result, Sweep):
            raise DataError(f"{name}: expected a sweep, to show it with others; got {result.kind}")
        sweeps[name] = result
    return together(sweeps)
