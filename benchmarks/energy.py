"""Energy on a GPU: NVML's counter beside the power that it reports, and joules an image.

    python -m benchmarks.energy --seconds 60
    python -m benchmarks.energy --network resnet50 --contestants pareo-cuda,torch-cudagraph-compile

The first command trains AlexNet for a minute. The counter is read at both ends; power is read every
20 ms and integrated. With --contestants each trains in turn, in a process of its own; only first
losses are compared, because the gate of `pareo race` takes minutes for large networks.
"""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.today import Cell, Runner, judge
from pareo.cli import options, run
from pareo.errors import PareoError
from pareo.lab.contestants.registry import known
from pareo.lab.experiment.worker import Failed, Worker
from pareo.lab.machine import nvml
from pareo.lab.machine.energy import NOT_HERE, STEP, Energy
from pareo.machine import cores

EVERY = 0.02  # seconds between two readings of the power
IDLE = 15.0  # seconds without work
TURN, ROUNDS = 8.0, 3  # seconds of a contestant's turn, and how many turns it has


class Trainer(Runner):
    """A contestant in its own process, which trains for so many seconds."""

    def train(self, seconds: float) -> int:
        """Train for so many seconds, and count the images."""
        before, end = self._done, time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.turn()
        return int((self._done - before) * self._task.batch)


@dataclass
class Phase:
    """What was read while something ran: joules by the counter, and moments with watts."""

    name: str
    joules: float = 0.0
    answer: Any = None
    moments: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)

    def add(self, watts: float | None) -> None:
        """Note a reading, if there is one."""
        if watts is not None:
            self.moments.append(time.perf_counter())
            self.watts.append(watts)

    @property
    def seconds(self) -> float:
        """From the first reading to the last."""
        return self.moments[-1] - self.moments[0]

    @property
    def integral(self) -> float:
        """Joules by the power: the area below its readings."""
        return float(np.trapezoid(self.watts, self.moments))

    @property
    def uncertainty(self) -> float:
        """Relative: what the steps of the counter make, as a race states it for one turn."""
        return STEP["NVML"] / self.seconds


def watched(gpu: nvml.Gpu, name: str, work: Callable[[], Any]) -> Phase:
    """Call `work`, and read the GPU meanwhile."""
    phase, over = Phase(name), threading.Event()

    def read() -> None:
        while not over.wait(EVERY):
            phase.add(gpu.read().watts)

    thread = threading.Thread(target=read, daemon=True)
    before = gpu.joules()
    phase.add(gpu.read().watts)
    thread.start()
    try:
        phase.answer = work()
    finally:
        over.set()
        thread.join()
    phase.add(gpu.read().watts)
    after = gpu.joules()
    if before is None or after is None or len(phase.watts) < 2:
        raise PareoError(f"energy {NOT_HERE}: the GPU reports no energy or no power")
    phase.joules = after - before
    return phase


def phases(made: list[Phase]) -> Table:
    """The counter beside the integral, a row for each phase."""
    shown = Table(title="NVML's counter and the integral of its power", title_justify="left")
    shown.add_column("phase")
    heads = ("s", "J, counter", "J, integral", "difference", "uncertainty", "W, mean", "W, highest")
    for head in heads:
        shown.add_column(head, justify="right")
    for one in made:
        shown.add_row(
            one.name, f"{one.seconds:.1f}", f"{one.joules:.1f}", f"{one.integral:.1f}",
            f"{one.joules / one.integral - 1:+.2%}", f"{one.uncertainty:.2%}",
            f"{one.joules / one.seconds:.1f}", f"{max(one.watts):.0f}",
        )  # fmt: skip
    return shown


def images(cells: dict[str, Cell], energy: dict[str, Energy], title: str) -> Table:
    """Joules an image, a row for each contestant."""
    shown = Table(title=title, title_justify="left")
    shown.add_column("contestant")
    heads = ("ms a step", "W, mean", "J an image", "less idling", "uncertainty")
    for head in heads:
        shown.add_column(head, justify="right")
    shown.add_column("note")
    for name, cell in cells.items():
        used = energy[name]
        if cell.note or used.per_image is None or used.net_per_image is None:
            shown.add_row(name, *[""] * len(heads), cell.note or "no energy")
            continue
        shown.add_row(
            name, f"{median(cell.seconds_per_step) * 1e3:.3f}", f"{used.joules / used.seconds:.0f}",
            f"{used.per_image:.4g}", f"{used.net_per_image:.4g}", f"{used.uncertainty:.1%}", "",
        )  # fmt: skip
    return shown


def compared(
    gpu: nvml.Gpu, network: str, batch: int, names: list[str], idle: Phase
) -> tuple[dict[str, Cell], dict[str, Energy]]:
    """Let contestants train in turn; their times and their energy."""
    watts = idle.joules / idle.seconds
    cells = {name: Cell(network, batch, name) for name in names}
    energy = {name: Energy(source="NVML", idle_watts=watts) for name in names}
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(Worker(Trainer, name, "bfloat16", cores(), threads=cores()))
            for name in names
        }
        for name, cell in cells.items():
            try:
                cell.loss = workers[name].ask("build", network, batch, None)
            except Failed as failure:  # a contestant that fails is a row
                cell.note = str(failure)
        judge(cells, "bfloat16")
        for _, name in product(range(ROUNDS), names):
            if not cells[name].note:
                try:
                    turn = watched(gpu, name, partial(workers[name].ask, "train", TURN))
                except Failed as failure:
                    cells[name].note = str(failure)
                    continue
                energy[name].add(turn.joules, turn.seconds, turn.answer)
                cells[name].seconds_per_step.append(turn.seconds * batch / turn.answer)
    return cells, energy


def main(
    seconds: Annotated[float, typer.Option(min=2, help="Seconds under load.")] = 60.0,
    network: Annotated[str, typer.Option(help="What is trained.")] = "alexnet",
    batch: Annotated[int, typer.Option(min=1, help="Images of a step.")] = 128,
    contestants: Annotated[str, typer.Option(help="Compare these, separated by commas.")] = "",
) -> None:
    """Compare the counter with the integral of the power, or contestants with each other."""
    names = contestants.split(",") if contestants else []
    for name in names:
        options.check_choice("--contestants", name, list(known()))
    gpu = nvml.opened()
    if gpu is None:
        raise PareoError(f"energy {NOT_HERE}: no NVIDIA GPU that nvidia-ml-py can read")
    console = Console(width=150)
    idle = watched(gpu, "idle", lambda: time.sleep(IDLE))
    if names:
        title = f"{network}, batch {batch}, bfloat16"
        console.print(images(*compared(gpu, network, batch, names, idle), title))
        return
    with Worker(Trainer, "pareo-cuda", "bfloat16", cores(), threads=cores()) as worker:
        worker.ask("build", network, batch, None)
        load = watched(gpu, f"training {network}", lambda: worker.ask("train", seconds))
    again = watched(gpu, "idle again", lambda: time.sleep(IDLE))
    console.print(phases([idle, load, again]))


if __name__ == "__main__":
    run(lambda: typer.run(main))
