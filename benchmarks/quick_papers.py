"""How long `pareo paper NAME --quick` takes, as on a machine that has never run pareo.

    python -m benchmarks.quick_papers

Each paper starts with an empty cache, so that it also compiles what it needs and measures this
machine's ceilings, as a new user's first command does. The exit status is 1 if a paper failed or
took longer than five minutes.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pareo.cli import run
from pareo.errors import PareoError
from pareo.lab.experiment import results
from pareo.lab.papers.published import NAMES
from pareo.lab.replication.result import PaperResult

MOST = 300.0  # seconds that a quick paper may take on two cores
HEADS = ("paper", "s", "exit status", "lines with a figure from here", "longest part")


def repeated(name: str) -> list[str]:
    """Repeat a paper quickly in an empty cache; a row of the table."""
    with TemporaryDirectory() as folder:
        made = Path(folder, "paper.json")
        began = time.perf_counter()
        done = subprocess.run(
            [
                sys.executable, "-m", "pareo", "paper", name, "--quick",
                "--json", str(made), "--html", str(made.with_suffix(".html")),
            ],
            env={**os.environ, "PAREO_CACHE_DIR": str(Path(folder, "cache"))},
            stdout=subprocess.DEVNULL,
            check=False,
        )  # fmt: skip
        seconds = time.perf_counter() - began
        result = results.read(made) if made.exists() else None
        if result is not None and not made.with_suffix(".html").exists():
            raise PareoError(f"{name}: wrote no report")
    return row(name, seconds, done.returncode, result)


def row(name: str, seconds: float, status: int, result: results.Result | None) -> list[str]:
    """The cells of a paper; a result that is missing leaves them empty."""
    cells = [name, f"{seconds:.0f}", str(status)]
    if not isinstance(result, PaperResult):
        return [*cells, "", ""]
    published = [line for line in result.lines if line.published is not None]
    here = sum(line.here is not None for line in published)
    longest = max(result.parts, key=lambda part: part.seconds)
    return [*cells, f"{here} of {len(published)}", f"{longest.name}, {longest.seconds:.0f} s"]


def in_time(row: list[str]) -> bool:
    """Whether a paper succeeded within the time.

    >>> in_time(["melo", "250", "0", "", ""]), in_time(["melo", "301", "0", "", ""])
    (True, False)
    >>> in_time(["melo", "250", "1", "", ""])
    False
    """
    return float(row[1]) <= MOST and row[2] == "0"


def main(
    papers: Annotated[
        str, typer.Option(help="Names separated by commas.", show_default="all")
    ] = ",".join(NAMES),
) -> None:
    """Print how long each quick paper takes, from an empty cache."""
    names = papers.split(",")
    if unknown := [name for name in names if name not in NAMES]:
        raise PareoError(f"--papers expects some of {', '.join(NAMES)}; got {unknown[0]!r}")
    rows = [repeated(name) for name in names]
    table = Table()
    for head in HEADS:
        table.add_column(head, justify="right" if head in ("s", "exit status") else "left")
    for cells in rows:
        table.add_row(*cells)
    Console().print(table)
    if not all(map(in_time, rows)):
        raise typer.Exit(1)


if __name__ == "__main__":
    run(lambda: typer.run(main))
