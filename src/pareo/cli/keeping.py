"""What becomes of a result: a JSON file, a number of `pareo history`, a report, an exit status."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from pareo.lab import records
from pareo.lab.writing import write_whole

# Of other kinds than a race, each with the module that draws it.
PAGES = {
    "sweep": "pareo.lab.report.sweep",
    "kernels": "pareo.lab.report.kernels",
    "ops": "pareo.lab.report.ops",
    "parallel": "pareo.lab.report.parallel",
    "parallel-papers": "pareo.lab.report.parallel",
    "tune": "pareo.lab.report.tune",
}


def keep(
    result: dict[str, Any], json_file: Path | None, html: Path | None, save: bool
) -> list[str]:
    """Do what was asked for; lines that say where it is.

    To be called before anything is printed, which a closed pipe or a full disk may prevent.
    """
    told = []
    if json_file is not None:
        write_json(result, json_file)
        told.append(f"result      {json_file}")
    if save:
        told.append(f"kept as     {records.save(result)}, see `pareo history`")
    if html is not None:
        told.append(draw(result, html))
    return told


def left_alone(*files: Path | None) -> tuple[Path | None, ...]:
    """The files that an interrupted run may write: those that are not there yet."""
    return tuple(None if path is None or path.is_file() else path for path in files)


def tell(lines: list[str]) -> None:
    """Say where everything is, each as long as it is."""
    for line in lines:
        print(line)


def end(rows: list[dict[str, Any]]) -> None:
    """Exit with status 1 where someone was refused or failed, or nobody could be tried."""
    statuses = {row["status"] for row in rows}
    if statuses & {"refused", "failed"} or statuses == {"missing"}:
        raise typer.Exit(1)


def write_json(result: dict[str, Any], path: Path) -> None:
    """Write all of a result to a file."""
    write_whole(path, json.dumps(result, indent=1, allow_nan=False))


def draw(result: dict[str, Any], path: Path) -> str:
    """Write the report of a result of any kind; a line that says where."""
    pages = PAGES.get(result["kind"], "pareo.lab.report.page")
    import_module(pages).write(result, path)
    return f"report      {path.absolute()}"
