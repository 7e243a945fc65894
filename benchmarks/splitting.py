"""Time the step of one network split over workers, in every way that the network allows.

    python -m benchmarks.splitting alexnet --batch 32 --workers 2

`pareo parallel` compares whole epochs. This benchmark compares single steps, and also shows the
bytes that workers share, the balance of a pipeline, and data parallelism without factors. All ways
train from the same weights on the same batches, some steps at a time in turn. The first step of a
turn is not timed, because it touches new memory.
"""

import math
import time
from collections.abc import Callable
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from pareo.cli import live, options, run
from pareo.data import Dataset, load
from pareo.device import Device, cores
from pareo.lab.atomic_write import write_whole
from pareo.lab.experiment.results import to_json
from pareo.lab.parallel.engine import Strategy, Turn, race
from pareo.lab.parallel.result import Row
from pareo.machine import describe
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.parallel import data as data_parallel
from pareo.parallel import model
from pareo.parallel.group.batch_schedule import BatchSchedule
from pareo.parallel.group.result import FittedData, TrainingResult, WorkerTime
from pareo.training.settings import Settings
from pareo.training.step import Step

ONE, INSIDE = "one worker", "one worker, threads inside"
Fit = Callable[[], TrainingResult]


def alone(network: Sequential, given: Dataset, settings: Settings, threads: int) -> TrainingResult:
    """The same steps by one worker, as `fit` runs them, with this many threads in each."""
    ready = FittedData.of(network, given, settings)
    schedule = BatchSchedule(settings, len(ready.images), epochs=1)
    parameters = network.initialise(settings.seed, settings.dtype)
    step = Step(network, schedule.sizes[0], Device("compiled", threads))
    losses, seconds = [], []
    for number, chosen, (rate,) in schedule:
        begin = time.perf_counter()
        losses += list(
            step.run(parameters, {}, ready.images, ready.labels, chosen[None], rate,
                     settings.seed, number)
        )  # fmt: skip
        seconds.append(time.perf_counter() - begin)
    share = WorkerTime(0, sum(seconds), sum(seconds), 0.0, 0.0)
    return TrainingResult(
        network, settings, "threads", 1, parameters, {}, np.array(losses), np.array(seconds),
        [share],
    )  # fmt: skip


def ways(
    network: Sequential, given: Dataset, settings: Settings, workers: int, micro: int
) -> dict[str, Fit]:
    """Every way that this network allows, one worker first."""
    train = network, given, settings
    found: dict[str, Fit] = {ONE: lambda: alone(*train, 1), INSIDE: lambda: alone(*train, workers)}

    def add(how: str) -> None:
        found[f"data in {how}"] = lambda: data_parallel.fit(*train, workers=workers, how=how)
        found[f"pipeline in {how}"] = lambda: model.pipeline(
            *train, workers=workers, how=how, micro=micro
        )
        if network.name.startswith("mlp"):
            found[f"neurons in {how}"] = lambda: model.neurons(*train, workers=workers, how=how)

    add("threads")
    add("processes")
    found["data in threads, whole gradients"] = lambda: data_parallel.fit(
        *train, workers=workers, factors=False
    )
    return found


def measure(
    chosen: dict[str, Fit], workers: int, rounds: int, say: Callable[[str], None]
) -> tuple[list[Row], dict[str, TrainingResult]]:
    """A row for each way, whose times are seconds of a step, and the outcome of its last turn."""
    last: dict[str, TrainingResult] = {}

    def strategy(name: str, run: Fit) -> Strategy:
        def turn() -> Turn:
            found = last[name] = run()
            shares = found.share_of("communication"), found.share_of("idle")
            return Turn(float(np.median(found.seconds[1:])), None, found.losses.tolist(), *shares)

        return Strategy(name, 1 if name == ONE else workers, turn)

    entered = [strategy(name, run) for name, run in chosen.items()]
    return race(entered, rounds, lambda rows, doing: say(doing)), last


def table(rows: list[Row], last: dict[str, TrainingResult], title: str) -> Table:
    """The rows as a table."""
    made = Table(title=title, title_justify="left")
    made.add_column("way")
    for head in ("ms a step", "fastest", "slowest", f"{ONE} / this", "threads inside / this",
                 "communication", "idle", "MB shared", "balance: predicted", "measured",
                 "losses differ by"):  # fmt: skip
        made.add_column(head, justify="right")
    known = {row.name: row.seconds or math.nan for row in rows}
    for row in rows:
        if row.status != "ok":
            made.add_row(row.name, row.note)
            continue
        outcome, seconds = last[row.name], known[row.name]
        differ = np.max(np.abs(outcome.losses / last[ONE].losses - 1))
        measured = outcome.measured if outcome.predicted else []
        made.add_row(
            row.name,
            *(f"{value * 1e3:.4g}" for value in (seconds, min(row.train), max(row.train))),
            *(f"{known[base] / seconds:.2f}" for base in (ONE, INSIDE)),
            *(f"{value or 0:.1%}" for value in (row.communication, row.idle)),
            f"{outcome.exchanged_bytes / 1e6:.3g}",
            *(" : ".join(f"{s:.0%}" for s in each) for each in (outcome.predicted, measured)),
            f"{differ:.1g}",
        )
    return made


def main(
    network: options.AnyNetwork,
    batch: options.Batch = 32,
    workers: Annotated[int | None, typer.Option(min=1, show_default="all cores")] = None,
    micro: Annotated[int, typer.Option(min=1, help="Parts of a batch in a pipeline.")] = 4,
    steps: Annotated[int, typer.Option(min=2, help="Steps of a turn; the first is untimed.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each way.")] = 3,
    only: Annotated[
        str, typer.Option("--ways", help="Some, as in data,pipeline; one worker always runs.")
    ] = "",
    json_file: options.JsonFile = None,
) -> None:
    """Time the step of one network split over workers, in every way that it allows."""
    built, count = networks.by_name(network), workers or cores()
    shape = "x".join(map(str, built.inputs))
    images = steps * batch
    made = load(f"synthetic:{shape}:{built.classes}:{images * 6 // 5 + 5}")
    data = Dataset(made.name, made.images[:images], made.labels[:images], made.images[:0],
                   made.labels[:0], built.classes)  # fmt: skip
    chosen = ways(built, data, Settings(batch, 1e-4), count, micro)
    wanted = (ONE, INSIDE, *only.split(","))
    chosen = {name: run for name, run in chosen.items() if name.startswith(wanted)}
    console = live.console(170)
    with console.status("") as status:
        rows, last = measure(chosen, count, rounds, status.update)
    console.print(table(rows, last, f"{built.name}, batch {batch}, {count} workers, {micro} parts"))
    if json_file:
        write_whole(json_file, to_json({"machine": describe(), "rows": rows}))
    if any(row.status != "ok" for row in rows):
        raise typer.Exit(1)


if __name__ == "__main__":
    run(lambda: typer.run(main))
