"""Time the training step of today's networks in pareo and beside it, without the lab's gate.

    python -m benchmarks.today --precision bfloat16 --batches 1,32,128
    python -m benchmarks.today --networks lenet5,resnet18 --batches 1,8,32 \
        --contestants pareo-compiled,torch,torch-channels-last,torch-onednn-off

It takes a tenth of the time of `pareo sweep`, which computes every network in float64 first. Here
only the first losses must agree; tests compare the gradients. Each contestant has its own process
for all networks, and builds and runs its steps in turn with the others.
"""

import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from pareo.cli import options, run
from pareo.device import PRECISIONS
from pareo.lab.atomic_write import write_whole
from pareo.lab.contestants import Task
from pareo.lab.contestants.registry import known
from pareo.lab.experiment.results import to_json
from pareo.lab.experiment.statistics import interval
from pareo.lab.experiment.tasks import task_for
from pareo.lab.experiment.worker import Failed, Worker, interleaved
from pareo.lab.machine import memory
from pareo.machine import cores, describe, gpus

NETWORKS = "resnet50,resnet18,vgg16,mobilenet-v2,densenet121,vit-b-16"
AGREE = {"float32": 1e-3, "tf32": 1e-2, "bfloat16": 1e-1}  # of the first loss
SAMPLE = 0.25  # seconds at least, on a CPU
SHORT = 0.1  # on a GPU, whose time varies less
_TOGETHER: AbstractContextManager[None] = nullcontext()


@dataclass
class Cell:
    """What one contestant did with one network at one batch size."""

    network: str
    batch: int
    contestant: str
    loss: float = float("nan")
    bytes: int | None = None
    seconds_per_step: list[float] = field(default_factory=list)
    note: str = ""


class Runner:
    """A contestant in its own process."""

    def __init__(self, name: str, precision: str, threads: int) -> None:
        self._contestant = known()[name].in_precision(precision)
        self._contestant.load()
        self.threads, self._done, self._steps = threads, 0, 1
        self._trainer: Any = None

    def __call__(self, question: str, *details: Any) -> Any:
        """The answer to a question, which is a method's name."""
        return getattr(self, question)(*details)

    def build(self, network: str, batch: int, pixels: int | None) -> float:
        """Make another network ready to train; the loss of its first step."""
        return self.start(task_for(network, batch, self.threads, pixels))

    def start(self, task: Task) -> float:
        """Make a task ready to train; the loss of its first step."""
        self._trainer = None
        gc.collect()
        if "torch" in sys.modules:
            sys.modules["torch"]._dynamo.reset()
            sys.modules["torch"].cuda.empty_cache()
        self._task = task
        self._done, self._steps = 0, 1
        self._trainer = self._contestant.build(self._task)
        loss, _ = self.turn()
        for _ in range(2):
            self.turn()
        memory.forget_peak()
        getattr(self._trainer, "forget_peak", lambda: None)()
        wanted = SHORT if self._contestant.gpu else SAMPLE
        # What a call costs besides its steps would make many of a single step.
        for share in (0.1, 1.0):
            _, took = self.turn()
            self._steps = max(2, self._steps, int(share * wanted / took))
            self.turn()  # which compiles whatever depends on the number of steps
        return loss

    def turn(self) -> tuple[float, float]:
        """The mean loss of some steps, and the seconds for each."""
        order = self._task.order(self._task.count(), self._done, self._steps)
        begin = time.perf_counter()
        losses = self._trainer.run(order)
        took = time.perf_counter() - begin
        self._done += self._steps
        return float(np.mean([float(loss) for loss in losses])), took / self._steps

    def bytes(self) -> int:
        """The peak memory: of a GPU's arrays, or of the whole process."""
        peak = getattr(self._trainer, "peak_bytes", lambda: None)()
        return int(memory.peak() if peak is None else peak)


class Team:
    """The contestants' processes. One that failed is started again: it is not missing later.

    start: makes the process of a name.
    """

    def __init__(self, names: Sequence[str], start: Callable[[str], Worker]) -> None:
        self._names, self._start = names, start
        self._workers: dict[str, Worker] = {}

    def ready(self) -> dict[str, Worker]:
        """A process for each name, in their order."""
        for name in self._names:
            if name not in self._workers:
                self._workers[name] = self._start(name)
        return {name: self._workers[name] for name in self._names}

    def pause(self) -> None:
        """Stop all processes until `resume`."""
        for worker in list(self._workers.values()):
            worker.pause()

    def resume(self) -> None:
        """Let all processes go on."""
        for worker in list(self._workers.values()):
            worker.resume()

    def keep(self, workers: Mapping[str, Worker]) -> None:
        """End the processes that are not among these."""
        for name in self._workers.keys() - workers.keys():
            self._workers.pop(name).close()

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *_: object) -> None:
        self.keep({})


def timed(
    workers: dict[str, Worker], cells: dict[str, Cell], pixels: int | None, rounds: int,
    at_once: bool = False, alone: AbstractContextManager[None] = _TOGETHER,
) -> None:  # fmt: skip
    """Build one network at one batch size in every process, and time it in turn.

    at_once: build it in all processes at the same time, which is faster on a machine with many
        cores.
    alone: entered while it is timed.
    """
    running = build(workers, cells, pixels, at_once)
    with alone:
        for answers in interleaved(running, rounds, "turn"):
            for name, answer in answers.items():
                if isinstance(answer, Failed):
                    cells[name].note = str(answer)
                    workers.pop(name, None)
                else:
                    cells[name].seconds_per_step.append(answer[1])
    for name, worker in running.items():
        if name in workers:
            cells[name].bytes = worker.ask("bytes")


def build(
    workers: dict[str, Worker], cells: dict[str, Cell], pixels: int | None, at_once: bool
) -> dict[str, Worker]:
    """Build one network at one batch size in every process; those in which it can be timed."""
    running = {}
    questions = {name: ("build", cell.network, cell.batch, pixels) for name, cell in cells.items()}
    for name in questions if at_once else ():
        workers[name].put(*questions[name])
    for name, cell in cells.items():
        try:
            worker = workers[name]
            cell.loss = worker.get() if at_once else worker.ask(*questions[name])
            running[name] = worker
        except Failed as failure:  # a contestant that fails is a row
            cell.note = str(failure)
            workers.pop(name)
    return running


def judge(cells: dict[str, Cell], precision: str) -> None:
    """Refuse who begins with another loss than most."""
    middle = float(np.nanmedian([cell.loss for cell in cells.values()]))
    for cell in cells.values():
        if not cell.note and not abs(cell.loss / middle - 1) < AGREE[precision]:
            cell.note = f"refused: its first loss is {cell.loss:.4g}, that of others {middle:.4g}"


def table(cells: list[Cell]) -> Table:
    """What was measured; a ratio is the time of a contestant over that of pareo."""
    made = Table(title="milliseconds for each step", title_justify="left")
    made.add_column("network")
    made.add_column("batch", justify="right")
    made.add_column("contestant")
    for head in ("median", "95 % interval", "images/s", "ratio", "GiB"):
        made.add_column(head, justify="right")
    made.add_column("note")
    ours = {
        (cell.network, cell.batch): interval(cell.seconds_per_step)[1]
        for cell in cells
        if cell.contestant.startswith("pareo") and cell.seconds_per_step and not cell.note
    }
    for cell in cells:
        about = cell.network, str(cell.batch), cell.contestant
        if not cell.seconds_per_step:
            made.add_row(*about, "", "", "", "", "", cell.note)
            continue
        low, middle, high = interval(cell.seconds_per_step)
        mine = ours.get((cell.network, cell.batch))
        ratio = "" if mine is None else f"{middle / mine:.2f}"
        size = "" if cell.bytes is None else f"{cell.bytes / 2**30:.2f}"
        # There is no interval of few samples.
        between = f"{low * 1e3:.3f} to {high * 1e3:.3f}" if isfinite(high) else "cannot tell"
        made.add_row(
            *about, f"{middle * 1e3:.3f}", between, f"{cell.batch / middle:,.0f}", ratio, size,
            cell.note,
        )  # fmt: skip
    return made


def main(
    networks: Annotated[str, typer.Option(help="Names, separated by commas.")] = NETWORKS,
    batches: Annotated[str, typer.Option(help="Batch sizes.")] = "1,32,128",
    contestants: Annotated[str, typer.Option(help="Names, separated by commas.")] = "",
    precision: options.Precision = "float32",
    pixels: Annotated[
        int | None,
        typer.Option(
            min=16, help="Width and height of the images.", show_default="the network's own"
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Samples of each contestant.")] = 8,
    json_file: options.JsonFile = None,
) -> None:
    """Time the training step of today's networks in pareo and beside it."""
    options.check_choice("--precision", precision, PRECISIONS)
    usual = "pareo-cuda,torch-cudagraph" if gpus() else "pareo-compiled,torch,torch-channels-last"
    names = (contestants or usual).split(",")
    for name in names:
        options.check_choice("--contestants", name, list(known()))
    console = Console(width=150)
    found: list[Cell] = []

    def start(name: str) -> Worker:
        return Worker(Runner, name, precision, cores(), threads=cores())

    with Team(names, start) as team:
        for network in networks.split(","):
            here: list[Cell] = []
            for batch in options.numbers("--batches", batches):
                workers = team.ready()
                cells = {name: Cell(network, batch, name) for name in workers}
                timed(workers, cells, pixels, rounds)
                team.keep(workers)
                judge(cells, precision)
                here += cells.values()
            console.print(table(here))
            found += here
            if json_file:
                result = {"machine": describe(), "precision": precision, "pixels": pixels}
                write_whole(json_file, to_json({**result, "cells": list(map(asdict, found))}))


if __name__ == "__main__":
    run(lambda: typer.run(main))
