"""How much memory a training step takes: measured for everyone, predicted for pareo.

    python -m pareo.lab.train_memory googlenet --batch 32

One batch size of what `pareo sweep` tells, without its times: each contestant trains a few steps in
a process of its own. What the process had before the data and the network's arrays came (the
interpreter, the framework, its machine code) is a column of its own.
"""

import argparse
import sys

from rich.console import Console
from rich.table import Table

from pareo.device import cores
from pareo.errors import PareoError
from pareo.lab.arguments import among, least_one
from pareo.lab.contestants import CONTESTANTS
from pareo.lab.experiment.answers import Entrant
from pareo.lab.experiment.tasks import task_for
from pareo.lab.experiment.worker import Failed
from pareo.lab.sweep.cells import Cell
from pareo.lab.sweep.runner import CellRunner

MEGA = 1 << 20
COLUMNS = ("before", "data", "program", "used")


def measure(
    name: str, batch: int, size: int, contestants: list[str], threads: int
) -> tuple[Table, bool]:
    """A table with one row for each contestant, and whether all of them have figures."""
    fine = True
    task = task_for(name, batch, threads, size)
    table = Table(title=f"{name}, batch {batch}: memory of a training step, MiB")
    table.add_column("contestant", no_wrap=True)
    for heading in (*COLUMNS, "predicted", "off, of what is used"):
        table.add_column(heading, justify="right")
    for each in contestants:
        cell = Cell(each, batch)
        with Entrant(CellRunner, CONTESTANTS[each], task, threads=threads) as worker:
            try:
                cell.memory = worker.ask("footprint")
                cell.memory["program"] = worker.ask("predicted")
            except Failed as failure:
                table.add_row(each, *[""] * 5, str(failure))
                fine = False
                continue
        sizes = [cell.memory[name] for name in COLUMNS]
        row = ["" if size is None else f"{size / MEGA:.0f}" for size in sizes]
        if cell.predicted is not None and cell.memory["used"]:
            off = cell.predicted / cell.memory["used"] - 1
            row += [f"{cell.predicted / MEGA:.0f}", f"{off:+.1%}"]
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
