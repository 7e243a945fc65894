"""The tables of the results in docs/, measured again by the commands behind them.

`python -m benchmarks.figures` runs the commands of `figures.toml` that this machine can run, keeps
what their tables say as JSON under docs/results/figures, and writes these tables into the pages.
tests/benchmarks/test_figures.py checks that pages and files agree.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from pareo import __version__
from pareo.cli import run
from pareo.errors import DataError, PareoError
from pareo.lab.atomic_write import write_whole
from pareo.machine import describe, gpus

ROOT = Path(__file__).parents[1]
MARKED = re.compile(r"<!-- figures: ([a-z0-9-]+) (\d+) -->\n(.*?)<!-- end -->", re.S)
TABLE = re.compile(r"(?:^\|.*\|\n)+", re.M)
NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?\s?%?")


@dataclass(frozen=True)
class Figure:
    """Tables of a page, and the commands that print them, in order."""

    name: str
    page: str
    commands: list[str]
    needs: list[str] = field(default_factory=list)
    minutes: int = 1

    @property
    def file(self) -> Path:
        """Where its tables are kept."""
        return ROOT / "docs" / "results" / "figures" / f"{self.name}.json"

    def missing(self) -> list[str]:
        """What this machine lacks to run the commands."""
        here = {"gpu": bool(gpus()) if "gpu" in self.needs else False}
        return [need for need in self.needs if not here.get(need, find_spec(need) is not None)]


@dataclass
class Table:
    """A table as text: its heads, which columns are right-aligned, and its rows."""

    heads: list[str]
    right: list[bool]
    rows: list[list[str]]

    def markdown(self) -> str:
        """The table as a page has it.

        >>> print(Table(["a", "s"], [False, True], [["x", "1"]]).markdown(), end="")
        | a | s |
        | --- | ---: |
        | x | 1 |
        """
        ends = ["---:" if right else "---" for right in self.right]
        lines = [self.heads, ends, *self.rows]
        return "".join(f"| {' | '.join(line)} |\n".replace("  |", " |") for line in lines)


def figures() -> list[Figure]:
    """All figures of the list."""
    text = (Path(__file__).parent / "figures.toml").read_text(encoding="utf-8")
    return [Figure(**one) for one in tomllib.loads(text)["figure"]]


def in_markdown(text: str) -> list[Table]:
    """The tables in a text of Markdown.

    >>> in_markdown("| a | s |\\n| --- | ---: |\\n| x | 1 |\\n")[0].rows
    [['x', '1']]
    """
    found = []
    for part in TABLE.findall(text):
        heads, ends, *rows = ([cell.strip() for cell in line.strip()[1:-1].split("|")]
                              for line in part.splitlines())  # fmt: skip
        if ends and all(re.fullmatch(":?-+:?", end) for end in ends):
            found.append(Table(heads, [end.endswith(":") for end in ends], rows))
    return found


def in_output(text: str) -> list[Table]:
    """The tables that a command printed: of Markdown, or drawn with lines, where cells may wrap.

    >>> drawn = "┃ a ┃ note ┃\\n┡━━━╇━━━━━━┩\\n│ x │ one  │\\n│   │ two  │\\n└───┴──────┘\\n"
    >>> in_output(drawn)[0].rows
    [['x', 'one two']]
    """
    found = in_markdown(text)
    heads: list[str] = []
    rows: list[list[str]] = []
    for line in text.splitlines():
        start = line.lstrip()[:1]
        if start == "┃":
            cells = [cell.strip() for cell in line.strip().strip("┃").split("┃")]
            heads = cells if not heads or rows else _joined(heads, cells)
            rows = []
        elif start == "│" and heads:
            cells = [cell.strip() for cell in line.strip()[1:-1].split("│")]
            if rows and not cells[0]:
                rows[-1] = _joined(rows[-1], cells)
            else:
                rows.append(cells)
        elif start == "└" and rows:
            found.append(Table(heads, _right(heads, rows), rows))
            heads, rows = [], []
    return found


def _joined(one: list[str], more: list[str]) -> list[str]:
    return [f"{a} {b}".strip() for a, b in zip(one, more, strict=True)]


def _right(heads: list[str], rows: list[list[str]]) -> list[bool]:
    """Whether columns hold numbers."""
    return [
        any(row[n] for row in rows) and all(NUMBER.fullmatch(row[n] or "0") for row in rows)
        for n in range(len(heads))
    ]  # fmt: skip


def measure(figure: Figure) -> dict[str, Any]:
    """Run the commands of a figure; what its file holds."""
    tables: list[Table] = []
    environment = {**os.environ, "COLUMNS": "240", "NO_COLOR": "1"}
    for command in figure.commands:
        done = subprocess.run(
            argv(command), cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        found = in_output(done.stdout)
        if not found:
            raise PareoError(f"{command}: printed no table, exit status {done.returncode}")
        tables += found
    return {
        "name": figure.name,
        "commands": figure.commands,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "pareo": __version__,
        "machine": describe(),
        "tables": [asdict(table) for table in tables],
    }


def argv(command: str) -> list[str]:
    """The words of a command, run by this Python.

    >>> argv("pareo race --quick")[1:]
    ['-m', 'pareo', 'race', '--quick']
    """
    first, *words = shlex.split(command)
    return [sys.executable, *(["-m", "pareo"] if first == "pareo" else []), *words]


def kept(figure: Figure) -> list[Table]:
    """The tables in the file of a figure."""
    try:
        data = json.loads(figure.file.read_text(encoding="utf-8"))
        return [Table(**table) for table in data["tables"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{figure.file}: expected tables; got: {error}") from error


def written(text: str, figure: Figure, tables: list[Table]) -> str:
    """A page with the tables of a figure in their places."""

    def place(found: re.Match[str]) -> str:
        name, number = found[1], int(found[2])
        if name != figure.name:
            return found[0]
        if number > len(tables):
            raise DataError(f"{figure.page}: table {number} of {name} is not in {figure.file}")
        table = tables[number - 1].markdown()
        return f"<!-- figures: {name} {number} -->\n{table}<!-- end -->"

    return MARKED.sub(place, text)


def adopted(text: str, figure: Figure) -> tuple[str, list[Table]]:
    """A page with places around all its tables, and these: how a page becomes a generated one."""
    plain = MARKED.sub(lambda found: found[3], text)
    numbers = count(1)
    marked = TABLE.sub(
        lambda found: f"<!-- figures: {figure.name} {next(numbers)} -->\n{found[0]}<!-- end -->\n",
        plain,
    )
    return marked, in_markdown(plain)


def main(
    only: Annotated[str, typer.Option(help="Names, separated by commas; all without.")] = "",
    pages: Annotated[
        bool, typer.Option("--pages", help="Measure nothing: write pages from the files.")
    ] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Measure nothing: write files from the pages.")
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="List the commands.")] = False,
) -> None:
    """Measure the tables of docs/results again, and write them into their pages."""
    names = only.split(",") if only else [figure.name for figure in figures()]
    known = {figure.name: figure for figure in figures()}
    for name in names:
        if name not in known:
            raise PareoError(f"--only expects names of {', '.join(known)}; got {name!r}")
    for figure in (known[name] for name in names):
        page = ROOT / figure.page
        if show:
            print(f"{figure.name}: about {figure.minutes} min, {figure.page}")
            print("".join(f"    {command}\n" for command in figure.commands), end="")
            continue
        if adopt:
            text, tables = adopted(page.read_text(encoding="utf-8"), figure)
            data = {"name": figure.name, "commands": figure.commands, "when": None,
                    "tables": [asdict(table) for table in tables]}  # fmt: skip
            figure.file.parent.mkdir(exist_ok=True)
            write_whole(figure.file, json.dumps(data, indent=1, ensure_ascii=False) + "\n")
            write_whole(page, text)
            continue
        if not pages:
            if lacks := figure.missing():
                print(f"{figure.name}: left out, this machine has no {' and no '.join(lacks)}")
                continue
            print(f"{figure.name}: about {figure.minutes} min", flush=True)
            figure.file.parent.mkdir(exist_ok=True)
            text = json.dumps(measure(figure), indent=1, ensure_ascii=False)
            write_whole(figure.file, text + "\n")
        text = page.read_text(encoding="utf-8")
        write_whole(page, written(text, figure, kept(figure)))


if __name__ == "__main__":
    run(lambda: typer.run(main))
