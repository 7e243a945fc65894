"""How long `pareo history` and its page take with many saved races.

    python -m benchmarks.many_records --records 100000

Races of two contestants are saved to a temporary file: twenty networks in turn, ten rounds each,
one step of 5 %. The first listing adds them to the index, once; the others are timed.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from pareo.cli import run
from pareo.lab.experiment import records, results
from pareo.lab.experiment.results import Machine
from pareo.lab.race.result import RaceResult, Row

NETWORKS = 20
ROUNDS = 10
SECONDS = {"pareo-compiled": 1.0, "torch": 2.5}
COMMANDS = {
    "the first listing, which indexes": ["history"],
    "`pareo history`": ["history"],
    "`pareo history --steps`": ["history", "--steps"],
    "`pareo history --html`": ["history", "--html", "history.html"],
}


def race(draw: np.random.Generator, here: Machine, number: int, count: int) -> RaceResult:
    """A made-up race; from the middle on pareo is 5 % slower."""
    when = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(minutes=30 * number)
    rows = []
    for name, seconds in SECONDS.items():
        slower = 1.05 if name.startswith("pareo") and number > count // 2 else 1.0
        samples = seconds * slower * (1 + 0.01 * draw.standard_normal(ROUNDS))
        rows.append(
            Row(name, samples=samples.round(6).tolist(), rounds=[*range(1, ROUNDS + 1)], slice=1.0)
        )
    return RaceResult(
        schema=RaceResult.SCHEMA, kind="race", when=when.isoformat(timespec="seconds"),
        machine=here, versions={"pareo": "0.1.0"}, network=f"network-{number % NETWORKS}",
        data="mnist", batch=128, precision="float32", threads=2, images=60_000, flops=1, rows=rows,
    )  # fmt: skip


def texts(count: int) -> Iterator[tuple[str, str, str]]:
    """The rows of the records' file."""
    draw, here = np.random.default_rng(0), Machine.here()
    for number in range(count):
        one = race(draw, here, number, count)
        yield one.when, one.network, results.to_json(one, indent=None)


def timed(words: list[str], folder: Path) -> tuple[float, float]:
    """Seconds on the wall and of the processor that a command of pareo takes."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pareo", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, used


def main(
    count: Annotated[int, typer.Option("--records", min=1, help="Races to save.")] = 100_000,
    rounds: Annotated[int, typer.Option(min=1, help="Times that each command runs.")] = 5,
) -> None:
    """Time `pareo history` with many saved races."""
    table = Table(title=f"Seconds with {count:,} races", title_justify="left")
    table.add_column("command")
    for head in ("median", "fastest", "of the processor, median"):
        table.add_column(head, justify="right")
    with TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PAREO_RECORDS"] = str(folder / "records.sqlite")
        with records.opened(create=True) as file, file:
            asked = "INSERT INTO results(moment, network, result) VALUES (?, ?, ?)"
            file.executemany(asked, texts(count))
        for number, (said, words) in enumerate(COMMANDS.items()):
            found = [timed(words, folder) for _ in range(rounds if number else 1)]
            wall, used = (sorted(column) for column in zip(*found, strict=True))
            middle = len(found) // 2
            shown = (wall[middle], wall[0], used[middle])
            table.add_row(said, *(f"{seconds:.2f}" for seconds in shown))
    Console(width=120).print(table)


if __name__ == "__main__":
    run(lambda: typer.run(main))
