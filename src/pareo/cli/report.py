"""`pareo report`: draw a race that was kept, or one in a JSON file."""

from pathlib import Path
from typing import Annotated

import typer

from pareo.cli.keeping import draw
from pareo.lab import records


def report(
    race: Annotated[str, typer.Argument(help="A number of `pareo history`, `last`, or a file.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Where to.  [default: beside the file, or pareo-race-A.html]"),
    ] = None,
) -> None:
    """Write the report of any result: one HTML file that needs no network."""
    result = records.find(race)
    named = Path(race).with_suffix(".html") if Path(race).suffix == ".json" else None
    draw(result, out or named or Path(f"pareo-race-{race}.html"))
