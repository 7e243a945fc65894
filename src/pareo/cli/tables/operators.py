"""The table of `pareo train --profile`: the cost of each operator of the step."""

from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pareo.data import Dataset
from pareo.lab.machine.ceilings import limits
from pareo.moving import to_device
from pareo.program.text import amount
from pareo.training.evaluate import as_inputs
from pareo.training.fit import Result
from pareo.training.floor import floor_seconds
from pareo.training.profile import OperatorTime, operator_times
from pareo.training.step import Step, dropout_seeds


def show(result: Result, data: Dataset) -> None:
    """Time each instruction of the step for about a second, and print the table."""
    network, settings = result.network, result.settings
    dtype, size = settings.dtype, min(settings.batch_size, len(data.images))
    step = Step(network, size, result.device, settings.recipe, dtype)
    seeds = dropout_seeds(settings.seed, 0, network.seeds() + settings.recipe.seeds)
    arrays: Any = (
        {path: a.copy() for path, a in result.parameters.items()},  # the step updates them
        {path: a.copy() for path, a in result.slots.items()},
        as_inputs(network, data.images[:size], dtype),
        data.labels[:size],
        tuple(step.numbers(settings.rate, 0, 1)[0]),
        tuple(np.asarray(seed, np.int64) for seed in seeds),
    )
    with result.device:
        rows = operator_times(step.executable, to_device(arrays))
    table = Table(title=f"One step at batch {size}, by operator", title_justify="left")
    for head in ("operator", "calls", "seconds", "share", "FLOP/s", "GB/s", "of the floor"):
        table.add_column(head, justify="left" if head == "operator" else "right")
    everything = sum(row.seconds for row in rows)
    known = limits(result.device, dtype)
    for row in rows:
        limit = floor_seconds(row.flops, row.bytes, known.peak.value, known.bandwidth.value)
        table.add_row(*_cells(row, everything, limit))
    console = Console()
    console.print(table)
    if step.loops:
        console.print("[dim]In training this device runs all operators as one loop over images.[/]")
    console.print("[dim]Above 100 % of the floor: the data was in a cache, not in memory.[/]")


def _cells(row: OperatorTime, everything: float, limit: float) -> list[str]:
    return [
        row.name,
        f"{row.calls:,}",
        f"{row.seconds:.4f}",
        f"{row.seconds / everything:.1%}",
        amount(row.flops / row.seconds, "FLOP/s"),
        f"{row.bytes / row.seconds / 1e9:.2f}",
        f"{limit / row.seconds:.0%}",
    ]
