"""`pareo report`: draw a result that was kept, or one in a JSON file; or several sweeps as one."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pareo.cli.keeping import draw
from pareo.errors import DataError
from pareo.lab import records
from pareo.lab.sweep.together import together


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
            show_default="beside the file, pareo-KIND-NUMBER.html, or pareo-sweep-NETWORK.html",
        ),
    ] = None,
) -> None:
    """Write the report of any result: one HTML file that needs no network.

    Several sweeps of one network in one precision, on one machine, make one report; where two have
    timed the same, the later one is drawn.
    """
    result = _found(which)
    print(draw(result, out or _beside(which, result)))


def _beside(which: list[str], result: dict[str, Any]) -> Path:
    """Where a report goes if it is not told: one of several files is beside none of them."""
    if len(which) > 1:
        return Path(f"pareo-sweep-{result['network']}-{result['precision']}.html")
    (name,) = which
    if name == "last" or records.NUMBER.fullmatch(name):
        return Path(f"pareo-{result['kind']}-{name}.html")
    return Path(name).with_suffix(".html")


def _found(which: list[str]) -> dict[str, Any]:
    found = {name: records.find(name) for name in which}
    if len(found) == 1:
        return found[which[0]]
    for name, result in found.items():
        if result["kind"] != "sweep":
            raise DataError(
                f"{name}: expected a sweep, to show it with others; got {result['kind']}"
            )
    return together(found)
