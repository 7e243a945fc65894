"""The tables of the results in docs/, measured again by the commands behind them.

`python -m benchmarks.figures` runs the commands of `figures.toml` that this machine can run, keeps
their tables as JSON in docs/results/figures/MACHINE, and writes them into the pages. A page shows
the tables of one machine, which `figures.toml` names; those of other machines are listed in
docs/results/other-machines.md. tests/benchmarks/test_figures.py checks that pages and files agree.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from benchmarks.tables import Table, in_markdown
from pareo import __version__
from pareo.cli import run
from pareo.errors import DataError, PareoError
from pareo.lab.atomic_write import write_whole
from pareo.machine import describe, gpus

ROOT = Path(__file__).parents[1]
FILES = ROOT / "docs" / "results" / "figures"
OTHERS = ROOT / "docs" / "results" / "other-machines.md"
MARKED = re.compile(r"<!-- figures: ([a-z0-9-]+) -->\n(.*?)<!-- end -->", re.S)
HEAD = """# Other machines

The tables of the other pages are of one machine each. `make figures` on another one writes its
tables here. This page is generated from [files](figures), so no sentence explains the figures.
"""


@dataclass(frozen=True)
class Figure:
    """Tables of a page, and the commands that print them, in order.

    machine: the one whose tables the page shows. needs: packages, or "gpu". stored: the tables
    follow from files of the repository, so they are the same on every machine.
    """

    name: str
    page: str
    commands: list[str]
    machine: str
    needs: list[str] = field(default_factory=list)
    minutes: int = 1
    stored: bool = False

    @property
    def here(self) -> str:
        """The machine that its tables are measured on now."""
        return self.machine if self.stored else machine_name("gpu" in self.needs)

    def missing(self) -> list[str]:
        """What this machine lacks to run the commands."""
        here = {"gpu": bool(gpus()) if "gpu" in self.needs else False}
        return [need for need in self.needs if not here.get(need, find_spec(need) is not None)]


@dataclass
class Measured:
    """Tables as they were measured: on which machine, when, and by which version of pareo.

    by_command: the tables of each command; none for one that has not run here.
    """

    name: str
    machine: dict[str, Any]
    when: str
    pareo: str
    by_command: dict[str, list[Table]]

    @property
    def where(self) -> str:
        """The machine and the date, in a line; empty if they do not matter."""
        known = self.machine
        cards = ", ".join(card["name"] for card in known.get("cards") or [])
        cores = f"{known['processor']}, {known['cores']} cores" if "processor" in known else ""
        versions = (known.get("libraries") or {}).items()
        used = [f"{name} {text}" for name, text in versions if text and name in ("torch", "jax")]
        parts = [cards or cores, *used, f"pareo {self.pareo}" if self.pareo else "", self.when[:10]]
        return "; ".join(part for part in parts if part)

    def markdown(self) -> str:
        """The tables, and below them where they were measured."""
        every = [table for tables in self.by_command.values() for table in tables]
        text = "\n".join(table.markdown() for table in every)
        return f"{text}\n*{self.where}*\n" if self.where else text


def figures() -> list[Figure]:
    """All figures of the list."""
    text = (Path(__file__).parent / "figures.toml").read_text(encoding="utf-8")
    listed = tomllib.loads(text)
    usual = listed["machines"]
    return [
        Figure(**{"machine": usual["gpu" if "gpu" in one.get("needs", []) else "cpu"], **one})
        for one in listed["figure"]
    ]


def machine_name(on_gpu: bool) -> str:
    """This machine's kind, as a name for a directory: its GPU, or its processor and cores."""
    here = describe()
    cards = [gpu.name for gpu in gpus()] if on_gpu else []
    return slug(cards[0] if cards else f"{here['processor']} {here['cores']} cores")


def slug(text: str) -> str:
    """A name as a part of a path.

    >>> slug("Intel(R) Xeon(R) Processor @ 2.50GHz 2 cores"), slug("NVIDIA H200")
    ('intel-xeon-2.50ghz-2-cores', 'nvidia-h200')
    """
    text = re.sub(r"\((r|tm)\)|\b(cpu|processor)\b", " ", text.lower())
    return re.sub(r"[^a-z0-9.]+", "-", text).strip("-.") or "unknown"


def file_of(figure: Figure, machine: str) -> Path:
    """Where the tables of a figure are kept."""
    return FILES / machine / f"{figure.name}.json"


def kept(figure: Figure, machine: str) -> Measured | None:
    """The tables in the file of a figure; None where there is no file yet."""
    file = file_of(figure, machine)
    if not file.exists():
        return None
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        tables = {
            command: [Table(**table) for table in tables]
            for command, tables in data.pop("by_command").items()
        }
        return Measured(**data, by_command=tables)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file}: expected tables; got: {error}") from error


def measure(figure: Figure, number: int | None = None) -> Measured:
    """Run the commands of a figure, or the one of this number.

    The others then keep the tables that this version of pareo has measured here.
    """
    before = kept(figure, figure.here)
    same = number is not None and before is not None and before.pareo == __version__
    known = before.by_command if before is not None and same else {}
    found = {command: known.get(command, []) for command in figure.commands}
    for command in figure.commands if number is None else [figure.commands[number - 1]]:
        tables, status = output(command)
        if not tables:
            raise PareoError(f"{command}: printed no table, exit status {status}")
        if status:
            print(f"{command}: exit status {status}; read its tables before you keep them")
        found[command] = tables
    if figure.stored:
        return Measured(figure.name, {}, "", "", found)
    when = datetime.now(UTC).isoformat(timespec="seconds")
    here = describe() | ({} if "gpu" in figure.needs else {"cards": []})
    return Measured(figure.name, here, when, __version__, found)


def output(command: str) -> tuple[list[Table], int]:
    """The tables that a command prints, and its exit status."""
    environment = {**os.environ, "COLUMNS": "1000", "NO_COLOR": "1"}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "tables.json"
        recording = [sys.executable, "-m", "benchmarks.recording", str(file), *words(command)]
        done = subprocess.run(
            recording, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    return [Table(**one) for one in found] or in_markdown(done.stdout), done.returncode


def words(command: str) -> list[str]:
    """The module that a command runs, and its arguments.

    >>> words("pareo race --quick"), words("python -m benchmarks.today --rounds 8")
    (['pareo', 'race', '--quick'], ['benchmarks.today', '--rounds', '8'])
    """
    split = shlex.split(command)
    return split[2:] if split[:2] == ["python", "-m"] else split


def keep(figure: Figure, found: Measured) -> None:
    """Write the file of a figure."""
    file = file_of(figure, figure.here)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(asdict(found), indent=1, ensure_ascii=False) + "\n")


def written(text: str, figure: Figure) -> str:
    """A page with the tables of a figure in their place."""
    if f"<!-- figures: {figure.name} -->" not in text:
        raise DataError(f"{figure.page}: has no place for {figure.name}")

    def place(found: re.Match[str]) -> str:
        if found[1] != figure.name:
            return found[0]
        measured = kept(figure, figure.machine)
        tables = measured.markdown() if measured else "*Not measured yet.*\n"
        return f"<!-- figures: {found[1]} -->\n{tables}<!-- end -->"

    return MARKED.sub(place, text)


def other_machines() -> str:
    """The page with the tables of machines that no other page shows."""
    names = {figure.name: figure for figure in figures()}
    parts = [HEAD]
    for folder in sorted(FILES.iterdir()):
        found = [names[file.stem] for file in sorted(folder.glob("*.json")) if file.stem in names]
        other = [figure for figure in found if figure.machine != folder.name]
        parts += [f"\n## {folder.name}\n"] if other else []
        parts += [_part(figure, folder.name) for figure in other]
    return "".join(parts if len(parts) > 1 else [HEAD, "\nThere are none yet.\n"])


def _part(figure: Figure, machine: str) -> str:
    found = kept(figure, machine)
    if found is None:
        return ""
    commands = "".join(f"    {command}\n" for command in found.by_command)
    page = os.path.relpath(ROOT / figure.page, OTHERS.parent)
    return f"\n### {figure.name}\n\nAs in [{page}]({page}):\n\n{commands}\n{found.markdown()}"


def write_pages(chosen: list[Figure]) -> None:
    """Write the tables of these figures into their pages, and those of other machines."""
    for figure in chosen:
        page = ROOT / figure.page
        write_whole(page, written(page.read_text(encoding="utf-8"), figure))
    write_whole(OTHERS, other_machines())


def run_all(chosen: list[tuple[Figure, int | None]]) -> Iterator[str]:
    """Measure these figures, or one command of each; the names of those that failed."""
    for figure, number in chosen:
        if lacks := figure.missing():
            print(f"{figure.name}: left out, this machine has no {' and no '.join(lacks)}")
            continue
        part = "" if number is None else f", command {number} of {len(figure.commands)}"
        print(f"{figure.name}{part}: about {figure.minutes} min in all", flush=True)
        try:
            keep(figure, measure(figure, number))
        except PareoError as error:
            print(f"{figure.name}: {error}", flush=True)
            yield figure.name
            continue
        if figure.here == figure.machine and not figure.stored:
            print(f"{figure.page}: its tables are new; read the sentences around them")
        write_pages([figure])  # at once: a later figure may be interrupted


def asked(only: str) -> list[tuple[Figure, int | None]]:
    """The figures that a user names, and the number of a command where one is named.

    >>> [(figure.name, number) for figure, number in asked("race,today-h200:2")]
    [('race', None), ('today-h200', 2)]
    """
    known = {figure.name: figure for figure in figures()}
    found: list[tuple[Figure, int | None]] = []
    for word in only.split(",") if only else known:
        name, _, number = word.partition(":")
        if name not in known:
            raise PareoError(f"--only expects names of {', '.join(known)}; got {name!r}")
        most = len(known[name].commands)
        if number and not (number.isdecimal() and 1 <= int(number) <= most):
            raise PareoError(f"--only expects a command of {name} from 1 to {most}; got {number!r}")
        found.append((known[name], int(number) if number else None))
    return found


def main(
    only: Annotated[
        str, typer.Option(help="Names, separated by commas, or NAME:NUMBER for one command.")
    ] = "",
    new: Annotated[
        bool, typer.Option("--new", help="Only those that this machine has not measured yet.")
    ] = False,
    pages: Annotated[
        bool, typer.Option("--pages", help="Measure nothing: write pages from the files.")
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="List the commands.")] = False,
) -> None:
    """Measure the tables of docs/results again, and write them into their pages."""
    chosen = asked(only)
    if new:
        chosen = [one for one in chosen if not file_of(one[0], one[0].here).exists()]
    if show:
        for figure, _ in chosen:
            needs = f", needs {', '.join(figure.needs)}" if figure.needs else ""
            print(f"{figure.name}: about {figure.minutes} min{needs}, {figure.page}")
            print("".join(f"    {command}\n" for command in figure.commands), end="")
    elif pages:
        write_pages([figure for figure, _ in chosen])
    elif failed := list(run_all(chosen)):
        print(f"no tables: {', '.join(failed)}")
        raise typer.Exit(1)


if __name__ == "__main__":
    run(lambda: typer.run(main))
