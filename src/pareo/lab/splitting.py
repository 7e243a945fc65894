"""One network split over workers, against one worker: `python -m pareo.lab.splitting alexnet`.

Every way trains the same network from the same weights on the same batches, some steps at a time in
turn. A time is shown for those alone whose losses and parameters are one worker's. The first step
of a turn is not counted: it touches new memory.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from pareo.data import Dataset, load
from pareo.device import Device, cores
from pareo.errors import PareoError
from pareo.lab.arguments import least_one
from pareo.lab.atomic_write import write_or_say
from pareo.machine import describe
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.parallel import data as data_parallel
from pareo.parallel import model
from pareo.parallel.group.batch_schedule import BatchSchedule
from pareo.parallel.group.result import FittedData, TrainingResult, WorkerTime
from pareo.training.settings import Settings
from pareo.training.step import Step

APART = 1e-3  # of a loss: float32 after some steps with other orders of summation
ONE, INSIDE = "one worker", "one worker, threads inside"


@dataclass
class Row:
    """A way: its samples (seconds a step), and what its last turn told."""

    way: str
    workers: int
    samples: list[float] = field(default_factory=list)
    apart: float = 0.0
    communication: float = 0.0
    idle: float = 0.0
    shown: int = 0
    predicted: list[float] = field(default_factory=list)
    measured: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def median(self) -> float:
        """Seconds a step; NaN where the way failed."""
        return float(np.median(self.samples)) if self.samples else float("nan")


def alone(network: Sequential, given: Dataset, settings: Settings, threads: int) -> TrainingResult:
    """The same steps by one worker, as `fit` takes them, with so many threads inside each."""
    ready = FittedData.of(network, given, settings.dtype)
    course = BatchSchedule(settings, len(ready.images), epochs=1)
    parameters = network.initialise(settings.seed, settings.dtype)
    moving = settings.momentum > 0
    velocities = {path: np.zeros_like(a) for path, a in parameters.items()} if moving else {}
    device = Device("compiled", threads)
    step = Step(network, course.sizes[0], device, settings.momentum, settings.decay)
    rows = np.zeros((1, course.sizes[0]), np.int64)
    moved, speeds = ({path: a.copy() for path, a in p.items()} for p in (parameters, velocities))
    step.run(moved, speeds, ready.images, ready.labels, rows, 0.0)
    losses, seconds = [], []
    for number, chosen, rate in course:
        begin = time.perf_counter()
        losses += list(
            step.run(parameters, velocities, ready.images, ready.labels, chosen[None], rate,
                     settings.seed, number)
        )  # fmt: skip
        seconds.append(time.perf_counter() - begin)
    share = WorkerTime(0, sum(seconds), sum(seconds), 0.0, 0.0)
    return TrainingResult(
        network, settings, "threads", 1, parameters, velocities, np.array(losses),
        np.array(seconds), [share],
    )  # fmt: skip


def ways(
    network: Sequential, given: Dataset, settings: Settings, workers: int, micro: int
) -> dict[str, Callable[[], TrainingResult]]:
    """Every way that this network allows, one worker first."""
    found: dict[str, Callable[[], TrainingResult]] = {
        ONE: lambda: alone(network, given, settings, 1),
        INSIDE: lambda: alone(network, given, settings, workers),
    }
    for how in ("threads", "processes"):
        found[f"data in {how}"] = lambda how=how: data_parallel.fit(  # type: ignore[misc]
            network, given, settings, workers=workers, how=how
        )
    found["data in threads, gradients whole"] = lambda: data_parallel.fit(
        network, given, settings, workers=workers, factors=False
    )
    for how in ("threads", "processes"):
        found[f"pipeline in {how}"] = lambda how=how: model.pipeline(  # type: ignore[misc]
            network, given, settings, workers=workers, how=how, micro=micro
        )
    if network.name.startswith("mlp"):
        for how in ("threads", "processes"):
            found[f"neurons in {how}"] = lambda how=how: model.neurons(  # type: ignore[misc]
                network, given, settings, workers=workers, how=how
            )
    return found


def race(
    entered: dict[str, Callable[[], TrainingResult]],
    workers: int,
    rounds: int,
    say: Callable[[str], None],
) -> list[Row]:
    """A turn for every way in every round; a way that fails is a row that says why."""
    rows = {way: Row(way, 1 if way == ONE else workers) for way in entered}
    reference: TrainingResult | None = None
    for number in range(rounds):
        for way, run in entered.items():
            row = rows[way]
            if row.note:
                continue
            say(f"round {number + 1} of {rounds}: {way}")
            try:
                outcome = run()
            except PareoError as error:
                row.note = str(error)
                continue
            reference = reference or outcome
            _note(row, outcome, reference)
    return list(rows.values())


def _note(row: Row, outcome: TrainingResult, reference: TrainingResult) -> None:
    row.apart = float(np.max(np.abs(outcome.losses / reference.losses - 1)))
    if not row.apart <= APART:
        row.samples, row.note = [], f"its losses are {row.apart:.2g} apart from one worker's"
        return
    row.samples += [float(seconds) for seconds in outcome.seconds[1:]]
    row.communication = outcome.share_of("communication")
    row.idle, row.shown = outcome.share_of("idle"), outcome.exchanged_bytes
    row.predicted, row.measured = outcome.predicted, outcome.measured


def table(rows: list[Row], title: str) -> Table:
    """The rows as people read them."""
    made = Table(title=title, title_justify="left")
    made.add_column("way")
    for name in ("ms a step", "fastest", "slowest", f"{ONE} / this", "threads inside / this",
                 "communication", "idle", "MB shown", "balance: predicted", "measured",
                 "losses apart"):  # fmt: skip
        made.add_column(name, justify="right")
    known = {row.way: row.median for row in rows}
    for row in rows:
        if row.note:
            made.add_row(row.way, row.note)
            continue
        made.add_row(
            row.way, f"{row.median * 1e3:.4g}", f"{min(row.samples) * 1e3:.4g}",
            f"{max(row.samples) * 1e3:.4g}", f"{known[ONE] / row.median:.2f}",
            f"{known[INSIDE] / row.median:.2f}", f"{row.communication:.1%}", f"{row.idle:.1%}",
            f"{row.shown / 1e6:.3g}", _shares(row.predicted),
            _shares(row.measured) if row.predicted else "", f"{row.apart:.1g}",
        )  # fmt: skip
    return made


def _shares(values: list[float]) -> str:
    return " : ".join(f"{value:.0%}" for value in values)


def main(words: list[str] | None = None) -> int:
    """Race the ways; 1 where one failed, 0 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m pareo.lab.splitting", description=__doc__)
    parser.add_argument("network", choices=sorted(networks.NETWORKS))
    parser.add_argument("--batch", type=least_one, default=32)
    parser.add_argument("--workers", type=least_one, default=cores())
    parser.add_argument("--micro", type=least_one, default=4, help="parts of a batch in a pipeline")
    parser.add_argument("--steps", type=least_one, default=4, help="of a turn, the first untimed")
    parser.add_argument("--rounds", type=least_one, default=3)
    parser.add_argument(
        "--ways", help="some, as in data,pipeline in threads; one worker always runs"
    )
    parser.add_argument("--json", type=Path, help="write every sample to this file")
    found = parser.parse_args(words)
    if found.steps < 2:
        parser.error("--steps expects at least 2: the first is not timed")
    network = networks.by_name(found.network)
    shape = "x".join(map(str, network.inputs))
    count = found.steps * found.batch
    given = load(f"synthetic:{shape}:{network.classes}:{count * 6 // 5 + 5}")
    given = Dataset(given.name, given.images[:count], given.labels[:count], given.images[:0],
                    given.labels[:0], network.classes)  # fmt: skip
    settings = Settings(found.batch, 1e-4)
    entered = ways(network, given, settings, found.workers, found.micro)
    if found.ways:
        wanted = (ONE, INSIDE, *found.ways.split(","))
        entered = {way: run for way, run in entered.items() if way.startswith(wanted)}
    console = Console() if Console().is_terminal else Console(width=170)
    with console.status("") as status:
        rows = race(entered, found.workers, found.rounds, lambda doing: status.update(doing))
    title = f"{network.name}, batch {found.batch}, {found.workers} workers, {found.micro} parts"
    console.print(table(rows, title))
    if found.json:
        settings_used = {k: str(v) if isinstance(v, Path) else v for k, v in vars(found).items()}
        record = {
            "settings": settings_used,
            "machine": describe(),
            "rows": [asdict(r) for r in rows],
        }
        if not write_or_say(found.json, json.dumps(record, indent=1)):
            return 1
    return int(any(row.note for row in rows))


if __name__ == "__main__":
    sys.exit(main())
