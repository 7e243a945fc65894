"""`pareo report`: write the report of a saved result or of a JSON file, or of several sweeps."""

from pathlib import Path
from typing import Annotated

import typer

from pareo.cli.output import write_report
from pareo.errors import DataError
from pareo.lab.experiment import records
from pareo.lab.experiment.results import Result
from pareo.lab.sweep.join import together
from pareo.lab.sweep.result import SweepResult


def report(
    which: Annotated[
        list[str],
        typer.Argument(
            help="A number of `pareo history`, `last`, or a JSON file. Several if all are sweeps."
        ),
    ],
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write the report to this file.",
            show_default="beside the JSON file, pareo-result-NUMBER.html, or "
            "pareo-sweeps-FIRST.html",
        ),
    ] = None,
) -> None:
    """Write the report of a result: one HTML file that works offline.

    Several sweeps of the same network, precision and machine make one report. Where two sweeps
    contain the same cell, the later one is shown.
    """
    result = _found(which)
    place = html or default_path(which)
    for name in which:
        if not _number(name) and place.exists() and place.samefile(name):
            raise DataError(f"{name}: the report would replace it; choose another --html")
    print(write_report(result, place))


def default_path(which: list[str]) -> Path:
    """The path of the report where none is given.

    It depends on the command line only, because the content of a file may come from anyone.

    >>> default_path(["runs/a.json"]), default_path(["3"])
    (PosixPath('runs/a.html'), PosixPath('pareo-result-3.html'))
    >>> default_path(["runs/a.json", "b.json"])
    PosixPath('pareo-sweeps-a.html')
    """
    first = which[0]
    if len(which) > 1:
        return Path(f"pareo-sweeps-{Path(first).stem}.html")
    return (
        Path(f"pareo-result-{first}.html") if _number(first) else Path(first).with_suffix(".html")
    )


def _number(name: str) -> bool:
    """Whether a word names a saved result rather than a file."""
    return name == "last" or records.NUMBER.fullmatch(name) is not None


def _found(which: list[str]) -> Result:
    found = {name: records.find(name) for name in which}
    if len(found) == 1:
        return found[which[0]]
    sweeps = {}
    for name, result in found.items():
        if not isinstance(result, SweepResult):
            raise DataError(
                f"{name}: expected a sweep, because several were given; got {result.kind}"
            )
        sweeps[name] = result
    return together(sweeps)
