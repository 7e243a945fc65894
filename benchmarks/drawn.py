"""Time the training step of networks drawn at random, in pareo and beside it, without a gate.

    python -m benchmarks.drawn --kind cnn --seed 404 --count 12
    python -m benchmarks.drawn --kind mlp --seed 404 --contestants pareo-compiled,torch,jax

The networks are those of `pareo arena`, which races each of them under the parity gate and takes
five times as long. Here only the first losses must agree; tests compare the gradients.
"""

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
) -> None:
    """Time the training step of networks drawn at random."""
    options.check_choice("--precision", precision, PRECISIONS)
    options.check_choice("--kind", kind, KINDS)
    usual = "pareo-cuda,torch-cudagraph" if gpus() else "pareo-compiled,torch,torch-channels-last"
    names = (contestants or usual).split(",")
    for name in names:
        options.check_choice("--contestants", name, list(known()))
    threads = threads or cores()
    console, ratios = Console(width=150), []
    table = Table("network", "batch", *(f"{name}, us" for name in names), "ratio", "note")

    def start(name: str) -> Worker:
        return Worker(DrawnRunner, name, precision, threads, threads=threads)

    with Team(names, start) as team:
        for index in range(first, first + count):
            one = drawn(seed, index, (kind,))
            workers = team.ready()
            cells = {n: Cell(f"{kind}-{seed}-{index}", one.batch, n) for n in workers}
            timed(workers, cells, None, rounds, at_once)
            team.keep(workers)
            judge(cells, precision)
            ratios.append(ratio(cells))
            times = [
                f"{1e6 * np.median(cells[n].seconds_per_step):.1f}"
                if n in cells and cells[n].seconds_per_step
                else ""
                for n in names
            ]
            notes = "; ".join(cell.note for cell in cells.values() if cell.note)
            row = (str(index), str(one.batch), *times, f"{ratios[-1]:.2f}", notes)
            table.add_row(*row)
            console.print(*row, highlight=False)
    console.print(table)
    known_ratios = [one for one in ratios if one == one]
    if known_ratios:
        mean = np.exp(np.mean(np.log(known_ratios)))
        console.print(
            f"{kind} {seed}: geometric mean {mean:.2f}, least {min(known_ratios):.2f}, "
            f"{sum(one > 1 for one in known_ratios)} of {len(known_ratios)} above 1"
        )


if __name__ == "__main__":
    run(lambda: typer.run(main))
