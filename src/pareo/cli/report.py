"""`pareo report`: draw a race that was kept, or one in a JSON file."""

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from pareo.lab import records

# Of other kinds than a race.
PAGES = {kind: f"pareo.lab.report.{kind}" for kind in ("sweep", "kernels", "ops")}


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
    path = out or named or Path(f"pareo-race-{race}.html")
    pages = PAGES.get(result["kind"], "pareo.lab.report.page")
    import_module(pages).write(result, path)
    print(f"report      {path.absolute()}")
