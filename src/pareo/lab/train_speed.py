"""How fast a network trains, here and in the other frameworks: `python -m pareo.lab.train_speed`.

Everyone trains the same network (its Dropout taken out) by plain SGD in float32, from the same
weights on the same batches, in a process of its own, a chunk of steps at a time in turn. A time is
shown only for those whose first two steps agree with pareo's in float64, loss and every parameter.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pareo.device import Device, cores
from pareo.lab.arguments import among, least_one, numbers
from pareo.lab.atomic_write import write_or_say
from pareo.lab.contestants import CONTESTANTS, Contestant, Task
from pareo.lab.experiment.answers import Entrant
from pareo.lab.experiment.gate import audit
from pareo.lab.experiment.gate.parity import reference
from pareo.lab.experiment.results import plain
from pareo.lab.experiment.runner import Runner, agreement
from pareo.lab.experiment.tasks import LARGE, LARGE_RATE, network_of
from pareo.lab.experiment.worker import Failed, Worker, interleaved
from pareo.lab.machine.ceilings import limits
from pareo.machine import describe
from pareo.nn import networks
from pareo.training.step import step_program

RACED = ("papers-cnn", "mlp-small", "mlp-medium", "mlp-big", "alexnet", "googlenet")
EPOCH = 60_000  # images of MNIST
MOST = 10**6  # steps of a sample, whose seconds are what counts
RATE = 0.01


@dataclass
class Entry:
    """A contestant's row: its samples (seconds a step), or a note that says why there are none.

    turn: what a sample is taken from, as `turns.Turn` has it.
    """

    contestant: str
    note: str = ""
    failed: bool = False
    steps_per_sample: int = 0
    turn: dict[str, Any] = field(default_factory=dict)
    samples: list[float] = field(default_factory=list)
    error: dict[str, float] = field(default_factory=dict)
    peak_bytes: int | None = None  # of a GPU's memory, where a contestant tells

    @property
    def median(self) -> float:
        """The median of the samples."""
        return float(np.median(self.samples)) if self.samples else math.nan

    def fail(self, note: str) -> None:
        """No time for this one: what was measured before is dropped."""
        self.note, self.failed, self.samples = note, True, []


@dataclass
class Cell:
    """One network at one batch size: what a table shows."""

    network: str
    batch: int
    inputs: tuple[int, ...]
    flops: int
    entries: list[Entry]
    sgemm: list[float] = field(default_factory=list)

    @property
    def peak(self) -> float:
        """The FLOP/s of a large matrix product on this machine."""
        return max(self.sgemm, default=math.nan)

    @property
    def best_peer(self) -> float:
        """Seconds of the fastest that is not pareo."""
        peers = [e.median for e in self.entries if e.samples and not e.contestant.startswith("par")]
        return min(peers, default=math.nan)


def sgemm(task: Task) -> float:
    """FLOP/s of a large matrix product with as many threads as the task may use."""
    return limits(Device("compiled", threads=task.threads)).peak.value


def race(
    task: Task,
    contestants: dict[str, Contestant],
    rounds: int,
    seconds: float,
    progress: Progress | None = None,
    precision: str = "float32",
    peak: Callable[[Task], float] = sgemm,
    together: bool = False,
) -> Cell:
    """Let the contestants agree, then train in turn; `peak(task)` is what they are held against.

    They are built one after another, or `together` where there are cores and memory for it.
    """
    flops = step_program(task.network, task.batch).flops
    entries = {name: Entry(name) for name in contestants}
    cell = Cell(task.network.name, task.batch, task.network.inputs, flops, [*entries.values()])
    with ExitStack() as stack, _bar(progress, task, len(contestants) + rounds) as show:
        built = _built(task, contestants, entries, together, stack)
        workers = _gated(task, built, entries, seconds, precision, show)
        with suppress(Failed):  # then shares are unknown, and times are not
            cell.sgemm.append(peak(task))
        for answers in interleaved(workers, rounds, "run"):
            show("racing")
            for name, answer in answers.items():
                if isinstance(answer, Failed):
                    entries[name].fail(str(answer))
                elif not math.isfinite(answer[2]):
                    entries[name].fail(f"its loss became {answer[2]}")
                elif not entries[name].failed:
                    entries[name].samples.append(answer[0])
        timed = {name: worker for name, worker in workers.items() if entries[name].samples}
        _audited(task, timed, entries, precision)
    return cell


def _audited(
    task: Task, workers: dict[str, Entrant], entries: dict[str, Entry], precision: str
) -> None:
    """Everyone's memory; no time for who no longer trains."""
    with Worker(audit.reference, task, threads=task.threads) as auditor:
        for name, worker in workers.items():
            try:
                entries[name].peak_bytes = worker.ask("memory")
                found = audit.refusal(worker.ask("audit"), auditor.ask(task.batch), precision)
            except Failed as failure:
                found = str(failure)
            if found:
                entries[name].fail(found)


def _built(
    task: Task,
    contestants: dict[str, Contestant],
    entries: dict[str, Entry],
    together: bool,
    stack: ExitStack,
) -> Iterator[tuple[str, Entrant]]:
    """The contestants that are here, each in its process and at work on its first steps."""

    def begun(name: str, contestant: Contestant) -> tuple[str, Entrant]:
        worker = Entrant(Runner, contestant, task, threads=task.threads)
        stack.enter_context(worker)
        worker.put("agree")
        return name, worker

    here = {}
    for name, contestant in contestants.items():
        entries[name].note = contestant.missing() or ""
        if not entries[name].note:
            here[name] = contestant
    all_of_them = (begun(name, contestant) for name, contestant in here.items())
    return iter(list(all_of_them)) if together else all_of_them


def _gated(
    task: Task,
    built: Iterator[tuple[str, Entrant]],
    entries: dict[str, Entry],
    seconds: float,
    precision: str,
    show: Callable[[str], None],
) -> dict[str, Entrant]:
    """Those that agree."""
    workers: dict[str, Entrant] = {}
    with Worker(reference, task, precision, threads=task.threads) as judge:
        for name, worker in built:
            show(f"{name}: building, two steps")
            entry = entries[name]
            try:
                differs, entry.error = agreement(task, worker, judge)
                if not differs:
                    entry.turn = worker.ask("ready", MOST, seconds)
                    entry.steps_per_sample = entry.turn["steps"] - entry.turn["opening"]
            except Failed as failure:
                differs = str(failure)
            if differs:
                entry.fail(differs)
                worker.close()
            else:
                workers[name] = worker
    return workers


@contextmanager
def _bar(progress: Progress | None, task: Task, total: int) -> Iterator[Callable[[str], None]]:
    """A bar for one cell: called with what comes next, it moves on."""
    if progress is None:
        yield lambda text: None
        return
    title = f"{task.network.name}, batch {task.batch}"
    line = progress.add_task(title, total=total, completed=-1)
    yield lambda text: progress.update(line, advance=1, description=f"{title}: {text}")
    progress.remove_task(line)


def table(cell: Cell) -> Table:
    """What was measured, a row for each contestant."""
    shape = " x ".join(map(str, cell.inputs))
    small = cell.inputs == (1, 28, 28)
    peak = f"{cell.peak / 1e9:.3g} GFLOP/s" if cell.sgemm else "unknown"
    made = Table(
        title=f"{cell.network}, batch {cell.batch}, images {shape}: {cell.flops / 1e9:.3g} GFLOP a "
        f"step, sgemm peak {peak}",
        title_justify="left",
    )
    heads = ["median ms", "fastest", "slowest", "images/s"]
    heads += [f"s per {EPOCH:,}" if small else "ms per image", "best peer / this", "of sgemm"]
    notes = any(entry.note for entry in cell.entries)
    for head in ["contestant", *heads, *(["note"] if notes else [])]:
        left = head in ("contestant", "note")
        made.add_column(head, justify="left" if left else "right", no_wrap=not left)
    for entry in cell.entries:
        if not entry.samples:
            made.add_row(entry.contestant, "not timed", *[""] * (len(heads) - 1), entry.note)
            continue
        middle = entry.median
        speed = cell.batch / middle
        made.add_row(
            entry.contestant,
            *(f"{s * 1e3:.4g}" for s in (middle, min(entry.samples), max(entry.samples))),
            f"{speed:,.0f}" if speed >= 100 else f"{speed:.3g}",
            f"{EPOCH / speed:.4g}" if small else f"{1e3 / speed:.4g}",
            "" if math.isnan(cell.best_peer) else f"{cell.best_peer / middle:.2f}",
            f"{cell.flops / middle / cell.peak:.0%}" if cell.sgemm else "unknown",
        )
    return made


def record(
    cells: list[Cell],
    settings: dict[str, Any],
    command: str = "train_speed",
    precision: str = "float32",
) -> dict[str, Any]:
    """Everything that was measured, sample by sample, and where."""
    return {
        "command": f"python -m pareo.lab.{command}",
        "settings": settings,
        "precision": precision,
        "machine": describe(),
        "cells": [plain({**asdict(cell), "sgemm_peak": cell.peak}) for cell in cells],
    }


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The command line, understood."""
    parser = argparse.ArgumentParser(
        prog="python -m pareo.lab.train_speed",
        description="Race one training step: the same network in pareo and in its peers.",
        epilog=f"Contestants: {', '.join(CONTESTANTS)}. Dropout is taken out of every network.",
    )
    parser.add_argument("network", nargs="*", help=f"of {', '.join(networks.NETWORKS)}")
    parser.add_argument(
        "--batches", type=numbers, help="sizes, as in 1,32,128 (which is it for MNIST; else 1,8,32)"
    )
    parser.add_argument(
        "--contestants",
        type=among(CONTESTANTS),
        default=list(CONTESTANTS),
        help="names, as in torch,jax (default: all)",
    )
    parser.add_argument("--rounds", type=least_one, default=15, help="samples for each")
    parser.add_argument("--seconds", type=float, default=0.4, help="length of a sample, about")
    parser.add_argument("--threads", type=least_one, default=cores())
    parser.add_argument(
        "--size", type=least_one, default=224, help="pixels, for AlexNet and GoogLeNet"
    )
    parser.add_argument("--json", type=Path, help="write samples, versions and machine here")
    found = parser.parse_args(words)
    found.network = found.network or list(RACED)
    for name in found.network:
        if name not in networks.NETWORKS:
            parser.error(f"network {name!r} is none of {', '.join(networks.NETWORKS)}")
    return found


def bars() -> Progress:
    """Bars for a terminal's error stream, gone when they are done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)


def main(words: list[str] | None = None) -> int:
    """Race every network at every batch size; 1 where a contestant failed, 0 otherwise."""
    found = arguments(words)
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)  # a file has no edge
    contestants = {name: CONTESTANTS[name] for name in found.contestants}
    settings = {k: str(v) if isinstance(v, Path) else v for k, v in vars(found).items()}
    cells: list[Cell] = []
    written = True
    with bars() as p:
        for name in found.network:
            for batch in found.batches or ([1, 8, 32] if name in LARGE else [1, 32, 128]):
                rate = LARGE_RATE if name in LARGE else RATE
                task = Task(network_of(name, found.size), batch, found.threads, rate)
                cells.append(race(task, contestants, found.rounds, found.seconds, p))
                console.print(table(cells[-1]))
                if found.json:  # after every cell, so that a run cut short leaves what it has
                    text = json.dumps(record(cells, settings), indent=1)
                    written = write_or_say(found.json, text)
    return int(not written or any(entry.failed for cell in cells for entry in cell.entries))


if __name__ == "__main__":
    sys.exit(main())
