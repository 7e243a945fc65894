"""`pareo report`: draw a result that was kept, or one in a JSON file."""

from pathlib import Path
from typing import Annotated

import typer

from pareo.cli.keeping import draw
from pareo.lab import records


def report(
    which: Annotated[str, typer.Argument(help="A number of `pareo history`, `last`, or a file.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Where to.", show_default="beside the file, or pareo-KIND-NUMBER.html"),
    ] = None,
) -> None:
    """Write the report of any result: one HTML file that needs no network."""
    result = records.find(which)
    named = Path(which).with_suffix(".html") if Path(which).suffix == ".json" else None
    draw(result, out or named or Path(f"pareo-{result['kind']}-{which}.html"))
