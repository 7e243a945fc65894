"""The tables of papers that were repeated: what each published beside what was measured.

`python -m benchmarks.papers FILE.json` prints those of what `pareo paper NAME --json` wrote.
"""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.tables import Table
from pareo.cli import run
from pareo.errors import DataError
from pareo.lab.experiment import results
from pareo.lab.formatting import digits
from pareo.lab.replication.result import Line, PaperResult

HEADS = ["what", "paper", "here", "unit", "here / paper", "of the limit", "measured with"]


def table(result: PaperResult) -> Table:
    """A row for each line with something measured, of all sections."""
    title = f"{result.paper}, interrupted" if result.interrupted else result.paper
    rows = [_row(line) for line in result.lines if line.here is not None]
    return Table(HEADS, [False, True, True, False, True, True, False], rows, title)


def _row(line: Line) -> list[str]:
    assert line.here is not None
    what = f"{line.what} ({line.on})" if line.on else line.what
    published = "" if line.published is None else digits(line.published)
    ratio = digits(line.here / line.published) if line.published else ""
    share = "" if line.of_limit is None else f"{line.of_limit:.0%}"
    by = "; ".join(filter(None, (line.by, line.note)))
    return [what, published, digits(line.here), line.unit, ratio, share, by]


def main(
    files: Annotated[list[Path], typer.Argument(help="Results of `pareo paper NAME --json`.")],
) -> None:
    """Print the tables of papers that were repeated."""
    for file in files:
        result = results.read(file)
        if not isinstance(result, PaperResult):
            raise DataError(f"{file}: expected a paper; got a {result.kind}")
        print(table(result).markdown())


if __name__ == "__main__":
    run(lambda: typer.run(main))
