"""Time training steps on `compiled` that are recorded and repeated, beside the same run by Python.

    python -m benchmarks.recorded --networks mid-1010-47,cnn-2121-0,resnet18:1

A network is KIND-SEED-INDEX, drawn by the arena, or NAME:BATCH. Both ways have the same weights and
batches, and take turns in one process. What a step computes is the same to the bit.
"""

import time
from collections.abc import Callable
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from pareo.cli import run
from pareo.device import Device
from pareo.errors import PareoError
from pareo.lab.arena.draw import KINDS, drawn
from pareo.machine import cores
from pareo.nn import Sequential, networks
from pareo.training.step import Step

WARM = 3  # steps: the first one compiles, the second one is recorded
NETWORKS = "mid-1010-47,mid-1010-50,mid-1010-34,mid-1010-41,mid-1010-9,resnet18:1,mobilenet-v2:1"


def found(name: str) -> tuple[Sequential, int]:
    """A network and the size of its batches.

    >>> found("lenet5:8")[1]
    8
    """
    kind, *rest = name.split("-")
    if kind in KINDS and len(rest) == 2 and all(part.isdecimal() for part in rest):
        one = drawn(int(rest[0]), int(rest[1]), (kind,))
        return one.network, one.batch
    plain, _, batch = name.rpartition(":")
    if plain not in networks.NETWORKS or not batch.isdecimal() or int(batch) < 1:
        raise PareoError(f"--networks expects KIND-SEED-INDEX or NAME:BATCH; got {name!r}")
    return networks.by_name(plain), int(batch)


def timed(network: Sequential, batch: int, threads: int, rounds: int) -> tuple[int, float, float]:
    """The calls of a step, and the median seconds of one by Python and of one that is repeated."""
    device = Device("compiled", threads=threads)
    step = Step(network, batch, device)
    random = np.random.default_rng(0)
    parameters = network.initialise(0, "float32")
    images = random.standard_normal((batch, *network.inputs)).astype("float32")
    labels, order = random.integers(0, network.classes, batch), np.arange(batch)[None]
    numbers, seeds = tuple(step.numbers(0.0, 0, 1)[0]), (np.int64(1),) * network.seeds()

    def by_python() -> None:
        step.executable(parameters, {}, images, labels, numbers, seeds)

    def repeated() -> None:
        step.run(parameters, {}, images, labels, order, 0.0)

    samples: dict[Callable[[], None], list[float]] = {by_python: [], repeated: []}
    with device, step.without_loop():
        for way in samples:
            for _ in range(WARM):
                way()
        for _ in range(rounds):
            for way, times in samples.items():
                start = time.perf_counter()
                way()
                times.append(time.perf_counter() - start)
    python, machine = (float(np.median(times)) for times in samples.values())
    return len(step.executable.calls), python, machine


def main(
    names: Annotated[
        str, typer.Option("--networks", help="KIND-SEED-INDEX or NAME:BATCH, separated by commas.")
    ] = NETWORKS,
    rounds: Annotated[int, typer.Option(min=1, help="Steps of each way, in turns.")] = 60,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 for one per core.")] = 0,
) -> None:
    """Time steps that are recorded and repeated, beside the same steps run by Python."""
    chosen = {name: found(name) for name in names.split(",")}
    table = Table("network", "batch", "calls", "by Python, us", "recorded, us", "ratio")
    for name, (network, batch) in chosen.items():
        calls, python, machine = timed(network, batch, threads or cores(), rounds)
        times = f"{1e6 * python:.0f}", f"{1e6 * machine:.0f}", f"{python / machine:.2f}"
        table.add_row(name, str(batch), str(calls), *times)
    Console(width=120).print(table)


if __name__ == "__main__":
    run(lambda: typer.run(main))
