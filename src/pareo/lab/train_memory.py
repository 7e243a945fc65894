"""How much memory a training step takes: measured for everyone, predicted for pareo.

    python -m pareo.lab.train_memory googlenet --batch 32

Each contestant runs two steps in a process of its own. What the process had before the data and the
network's arrays came (the interpreter, the framework, its machine code) is a column of its own. For
the networks on MNIST the peak is that of loading the data, which no prediction counts.
"""

import argparse
import gc
import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from pareo.device import Device, cores
from pareo.errors import PareoError
from pareo.lab.arguments import among, least_one
from pareo.lab.contestants import CONTESTANTS, Contestant, Task
from pareo.lab.memory import now, peak
from pareo.lab.processes import Failed, Worker
from pareo.lab.train_speed import network_of
from pareo.training.step import Step

MEGA = 1 << 20


def stepping(contestant: Contestant, task: Task, small: Task) -> Callable[..., Any]:
    """Answers with the bytes before, the bytes at the peak, and the data's own."""

    def answer() -> tuple[int, int, int]:
        # Imports and machine code come with the same network on one small image.
        contestant.build(small).run(small.order(1, first=0, steps=1))
        gc.collect()
        before = now()
        trainer = contestant.build(task)
        images, labels = task.data()
        given = images.nbytes + labels.nbytes
        del images, labels
        trainer.run(task.order(max(64, 2 * task.batch), first=0, steps=2))
        return before, peak(), given

    return answer


def predicted(task: Task, device: str) -> int:
    """The bytes of one step by `program.memory`: arguments, values and work arrays.

    >>> predicted(Task(network_of("papers-cnn", 28), batch=128), "compiled") < 64 * MEGA
    True
    """
    step = Step(task.network, task.batch, Device(device, threads=task.threads))
    return int(step.program.memory(on=step.device))


def measure(
    name: str, batch: int, size: int, contestants: list[str], threads: int
) -> tuple[Table, bool]:
    """A table with one row for each contestant, and whether all of them have figures."""
    fine = True
    task = Task(network_of(name, size), batch, threads)
    small = Task(task.network, 1, threads)
    table = Table(title=f"{name}, batch {batch}: memory of a training step, MB")
    table.add_column("contestant", no_wrap=True)
    for heading in ("before", "peak", "grown by", "predicted", "off, of the peak"):
        table.add_column(heading, justify="right")
    for each in contestants:
        with Worker(stepping, CONTESTANTS[each], task, small, threads=threads) as worker:
            try:
                before, most, given = worker.ask()
            except Failed as failure:
                table.add_row(each, "", "", "", "", str(failure))
                fine = False
                continue
        row = [f"{n / MEGA:.0f}" for n in (before, most, most - before)]
        if each.startswith("pareo-"):
            expected = predicted(task, each.removeprefix("pareo-")) + given
            off = (before + expected) / most - 1
            row += [f"{expected / MEGA:.0f}", f"{off:+.1%}"]
        table.add_row(each, *row)
    return table, fine


def main(words: list[str] | None = None) -> int:
    """Print the table; 1 where a contestant failed, 0 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m pareo.lab.train_memory", description=__doc__)
    parser.add_argument("network", nargs="?", default="googlenet")
    parser.add_argument("--batch", type=least_one, default=32)
    parser.add_argument("--size", type=least_one, default=224, help="pixels, for the large ones")
    parser.add_argument("--threads", type=least_one, default=cores())
    parser.add_argument(
        "--contestants", type=among(CONTESTANTS), default=["pareo-compiled", "torch"]
    )
    found = parser.parse_args(words)
    try:
        table, fine = measure(
            found.network, found.batch, found.size, found.contestants, found.threads
        )
    except PareoError as error:
        parser.error(str(error))
    Console().print(table)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
