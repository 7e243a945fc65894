"""Time the training step of networks drawn at random, in pareo and beside it, without a gate.

    python -m benchmarks.drawn --kind cnn --seed 404 --count 12
    python -m benchmarks.drawn --kind mlp --seed 404 --contestants pareo-compiled,torch,jax
    python -m benchmarks.drawn --kind mid --teams 5     # a GPU beside many cores

The networks are those of `pareo arena`, which races each of them under the parity gate and takes
five times as long. Here only the first losses must agree; tests compare the gradients.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.today import Cell, Runner, Team, judge, timed
from pareo.cli import options, run
from pareo.device import PRECISIONS
from pareo.lab.arena.draw import KINDS, drawn
from pareo.lab.arena.settings import INVENTED
from pareo.lab.contestants import Task
from pareo.lab.contestants.registry import known
from pareo.lab.experiment.worker import Worker
from pareo.machine import cores, gpus

SETTLE = 0.3  # seconds in which a GPU finishes what paused processes gave it


class DrawnRunner(Runner):
    """A contestant in its own process; a network's name is KIND-SEED-INDEX."""

    def build(self, network: str, batch: int, pixels: int | None) -> float:
        kind, seed, index = network.split("-")
        one = drawn(int(seed), int(index), (kind,))
        return self.start(Task(one.network, batch, self.threads, one.rate, source=INVENTED))


def ratio(cells: dict[str, Cell]) -> float:
    """The time of the fastest other contestant over that of the first; NaN without both."""
    times = {
        name: float(np.median(cell.seconds_per_step))
        for name, cell in cells.items()
        if cell.seconds_per_step and not cell.note
    }
    first = next(iter(cells))
    others = [seconds for name, seconds in times.items() if name != first]
    return min(others) / times[first] if first in times and others else float("nan")


class Hall:
    """Teams that build their networks at the same time, and are timed one after another.

    The processes of all other teams are paused while one is timed.
    """

    def __init__(self, teams: Sequence[Team]) -> None:
        self._teams, self._timing = teams, threading.Lock()

    @contextmanager
    def alone(self, team: Team) -> Iterator[None]:
        """Pause all teams but one."""
        others = [other for other in self._teams if other is not team]
        with self._timing:
            try:
                for other in others:
                    other.pause()
                time.sleep(SETTLE if others else 0)
                yield
            finally:
                for other in others:
                    other.resume()


def raced(
    team: Team, hall: Hall, kind: str, seed: int, index: int, rounds: int, at_once: bool,
    precision: str,
) -> dict[str, Cell]:  # fmt: skip
    """What each contestant of a team did with one network."""
    one = drawn(seed, index, (kind,))
    workers = team.ready()
    cells = {n: Cell(f"{kind}-{seed}-{index}", one.batch, n) for n in workers}
    timed(workers, cells, None, rounds, at_once, hall.alone(team))
    team.keep(workers)
    judge(cells, precision)
    return cells


def row(index: int, cells: dict[str, Cell]) -> tuple[str, ...]:
    """A line of the table."""
    times = [
        f"{1e6 * np.median(cell.seconds_per_step):.1f}" if cell.seconds_per_step else ""
        for cell in cells.values()
    ]
    notes = "; ".join(cell.note for cell in cells.values() if cell.note)
    batch = next(iter(cells.values())).batch
    return (str(index), str(batch), *times, f"{ratio(cells):.2f}", notes)


def main(
    kind: Annotated[str, typer.Option(help="mlp, cnn or mid.")] = "cnn",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 404,
    count: Annotated[int, typer.Option(min=1, help="Networks to draw.")] = 12,
    contestants: Annotated[str, typer.Option(help="Names, the first one pareo's.")] = "",
    precision: options.Precision = "float32",
    rounds: Annotated[int, typer.Option(min=1, help="Samples of each contestant.")] = 6,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 for one per core.")] = 0,
    first: Annotated[int, typer.Option(min=0, help="Index of the first network.")] = 0,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Build the steps of all contestants at the same time.")
    ] = False,
    teams: Annotated[
        int, typer.Option(min=1, help="Networks to build at the same time. One is timed at a time.")
    ] = 1,
    within: Annotated[
        float, typer.Option(min=0, help="Seconds after which no further network is begun.")
    ] = float("inf"),
) -> None:
    """Time the training step of networks drawn at random."""
    options.check_choice("--precision", precision, PRECISIONS)
    options.check_choice("--kind", kind, KINDS)
    usual = "pareo-cuda,torch-cudagraph" if gpus() else "pareo-compiled,torch,torch-channels-last"
    names = (contestants or usual).split(",")
    for name in names:
        options.check_choice("--contestants", name, list(known()))
    threads = threads or cores()
    console = Console(width=150)
    table = Table("network", "batch", *(f"{name}, us" for name in names), "ratio", "note")

    def start(name: str) -> Worker:
        return Worker(DrawnRunner, name, precision, threads, threads=threads)

    found: dict[int, dict[str, Cell]] = {}
    indices, deadline = iter(range(first, first + count)), time.monotonic() + within
    with ExitStack() as stack:
        made = [stack.enter_context(Team(names, start)) for _ in range(teams)]
        hall, lock = Hall(made), threading.Lock()

        def race_some(team: Team) -> None:
            while time.monotonic() < deadline:
                with lock:
                    index = next(indices, None)
                if index is None:
                    return
                cells = raced(team, hall, kind, seed, index, rounds, at_once, precision)
                with lock:
                    found[index] = cells
                    console.print(*row(index, cells), highlight=False)

        pool = stack.enter_context(ThreadPoolExecutor(teams))
        for future in as_completed([pool.submit(race_some, team) for team in made]):
            future.result()
    for index, cells in sorted(found.items()):
        table.add_row(*row(index, cells))
    console.print(table)
    known_ratios = [one for one in map(ratio, found.values()) if one == one]
    if known_ratios:
        mean = np.exp(np.mean(np.log(known_ratios)))
        console.print(
            f"{kind} {seed}: geometric mean {mean:.2f}, least {min(known_ratios):.2f}, "
            f"{sum(one > 1 for one in known_ratios)} of {len(known_ratios)} above 1"
        )


if __name__ == "__main__":
    run(lambda: typer.run(main))
