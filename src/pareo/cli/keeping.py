"""What becomes of a result: a JSON file, a number of `pareo history`, a report, an exit status."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from pareo.errors import DataError
from pareo.lab import records

# Of other kinds than a race, each with the module that draws it.
PAGES = {
    "sweep": "pareo.lab.report.sweep",
    "kernels": "pareo.lab.report.kernels",
    "ops": "pareo.lab.report.ops",
    "parallel": "pareo.lab.report.parallel",
    "parallel-papers": "pareo.lab.report.parallel",
    "tune": "pareo.lab.report.tune",
}


def keep(result: dict[str, Any], json_file: Path | None, html: Path | None, save: bool) -> None:
    """Do what was asked for, and say where it is."""
    if json_file is not None:
        write_json(result, json_file)
        print(f"result      {json_file}")
    if save:
        print(f"kept as     {records.save(result)}, see `pareo history`")
    if html is not None:
        draw(result, html)


def end(rows: list[dict[str, Any]]) -> None:
    """Exit with status 1 where someone was refused or failed, or nobody could be tried."""
    statuses = {row["status"] for row in rows}
    if statuses & {"refused", "failed"} or statuses == {"missing"}:
        raise typer.Exit(1)


def write_json(result: dict[str, Any], path: Path) -> None:
    """Write all of a result to a file."""
    try:
        path.write_text(json.dumps(result, indent=1, allow_nan=False))
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from error


def draw(result: dict[str, Any], path: Path) -> None:
    """Write the report of a result of any kind."""
    pages = PAGES.get(result["kind"], "pareo.lab.report.page")
    import_module(pages).write(result, path)
    print(f"report      {path.absolute()}")
