"""The tables of papers that were repeated: what each published beside what was measured.

`python -m benchmarks.papers FILE.json` prints those of what `pareo paper NAME --json` wrote.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.tables import Table
from pareo.cli import run
from pareo.errors import DataError
from pareo.lab.experiment import results
from pareo.lab.formatting import digits
from pareo.lab.replication.result import Line, PaperResult, by_hardware, hardware
from pareo.lab.replication.words import measured_by, ratio

ENDS = ["here", "unit", "here / paper", "of the limit", "measured with"]


def tables(result: PaperResult) -> list[Table]:
    """A table for each section, with a row for each thing measured.

    It has a column for each of the paper's GPUs where there are several.
    """
    title = f"{result.paper}, interrupted" if result.interrupted else result.paper
    made = []
    for name, lines in result.sections.items():
        grouped = by_hardware([line for line in lines if line.here is not None])
        published = hardware(grouped)
        rows = [_row(row, published) for row in grouped.values()]
        heads = ["what", *(published or ["paper"]), *ENDS]
        right = [False, *[True for _ in published or [""]], True, False, True, True, False]
        if rows:
            made.append(Table(heads, right, rows, f"{title}: {name}"))
    return made


def _row(row: Mapping[str, Line], columns: list[str]) -> list[str]:
    """The cells of lines that differ in the paper's hardware alone."""
    first = next(iter(row.values()))
    assert first.here is not None
    what = f"{first.what} ({first.on})" if first.on and not columns else first.what
    papers = [row[name].published if name in row else None for name in columns]
    share = "" if first.of_limit is None else f"{first.of_limit:.0%}"
    return [
        what,
        *("" if one is None else digits(one) for one in papers or [first.published]),
        digits(first.here),
        first.unit,
        ", ".join(ratio(one.ratio) for one in row.values() if one.ratio),
        share,
        measured_by(first),
    ]


def main(
    files: Annotated[list[Path], typer.Argument(help="Results of `pareo paper NAME --json`.")],
) -> None:
    """Print the tables of papers that were repeated."""
    for file in files:
        result = results.read(file)
        if not isinstance(result, PaperResult):
            raise DataError(f"{file}: expected a paper; got a {result.kind}")
        for one in tables(result):
            print(one.markdown())


if __name__ == "__main__":
    run(lambda: typer.run(main))
