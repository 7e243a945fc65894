"""Time training steps in the loop over groups of images, and instruction by instruction.

    python -m benchmarks.group_loops --batches 1,8,128
    python -m benchmarks.group_loops --networks lenet5,pools --threads 1
    python -m benchmarks.group_loops --networks 202.4,202.39

A number such as 202.4 is a small CNN of `pareo arena --kinds cnn`, by its seed and index, with the
batch size that was drawn; mid.202.4 is a network of another kind.

With one thread, times are those of the processor, so that other programs disturb them less. The
last columns are what `step.explain` estimates, from which the faster way is chosen.
"""

import time
from collections.abc import Callable
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from pareo import Device
from pareo.backends.compiled.loops.groups import costs
from pareo.backends.compiled.loops.groups.loop import GroupLoop
from pareo.lab.arena.draw import drawn
from pareo.nn import (
    Conv,
    Dense,
    Flatten,
    GlobalAveragePool,
    MaxPool,
    ReLU,
    Sequential,
    networks,
)
from pareo.program import remove_common, remove_dead
from pareo.training.step import Step, one_image_program

SAMPLE = 0.2  # seconds at least


def _stack(channels: int, pixels: int) -> Sequential:
    layers = [Conv(channels, 3, padding=1), ReLU()] * 3
    shape = (channels, pixels, pixels)
    return Sequential([*layers, GlobalAveragePool(), Flatten(), Dense(10)], shape)


def _two(filters: int, size: int, hidden: int) -> Sequential:
    """Two convolutions with pooling, and two dense layers."""
    first = [Conv(filters, size, padding=size // 2), ReLU(), MaxPool(2)]
    second = [Conv(2 * filters, size, padding=size // 2), ReLU(), MaxPool(2)]
    return Sequential([*first, *second, Flatten(), Dense(hidden), ReLU(), Dense(10)], (1, 28, 28))


NETWORKS: dict[str, Callable[[], Sequential]] = {
    "lenet5": networks.lenet5,
    "papers-cnn": networks.papers_cnn,
    "pools": lambda: Sequential(
        [Conv(6, 5), ReLU(), MaxPool(2), Flatten(), Dense(10)], (1, 28, 28)
    ),
    "cnn-16-32": lambda: _two(16, 3, 128),
    "cnn-32-64": lambda: _two(32, 5, 64),
    "wide-dense": lambda: _two(8, 3, 1024),
    "strides": lambda: Sequential(
        [
            Conv(16, 3, padding=1), ReLU(), Conv(16, 3, stride=2, padding=1), ReLU(),
            Conv(32, 3, padding=1), ReLU(), Conv(32, 3, stride=2, padding=1), ReLU(),
            Flatten(), Dense(10),
        ],
        (3, 32, 32),
    ),
    "stack-16": lambda: _stack(16, 16),
    "stack-32": lambda: _stack(32, 16),
    "stack-64": lambda: _stack(64, 8),
}  # fmt: skip


def _loop(network: Sequential, threads: int) -> GroupLoop:
    """The loop, whether it is estimated to be worth it or not."""
    program, state = one_image_program(network, "float32")
    return GroupLoop(remove_dead(remove_common(program)), threads, state)


def _chosen(name: str, batches: str) -> tuple[Sequential, list[int]]:
    """A network by its name, or by its seed and index, and batch sizes."""
    if name in NETWORKS:
        return NETWORKS[name](), [int(batch) for batch in batches.split(",")]
    *kind, seed, index = name.split(".")
    one = drawn(int(seed), int(index), kind or ["cnn"])
    return one.network, [one.batch]


def milliseconds(
    network: Sequential, loop: GroupLoop, batch: int, threads: int, rounds: int
) -> list[float]:
    """The least time of a step in groups of images, and instruction by instruction."""
    random = np.random.default_rng(1)
    images = random.random((300, *network.inputs), np.float32)
    labels = random.integers(0, network.classes, 300)
    step = Step(network, batch, Device("compiled", threads=threads))
    first, second = network.initialise(1), network.initialise(1)
    clock = time.thread_time if threads == 1 else time.perf_counter

    def in_groups(order: np.ndarray) -> None:
        loop(list(first.values()), [], images, labels, order, 0.01, 0.0, 0.0)

    def by_instructions(order: np.ndarray) -> None:
        with step.without_loop():
            step.run(second, {}, images, labels, order, rate=0.01)

    ways, counts, found = (in_groups, by_instructions), [], [float("inf")] * 2
    for way in ways:
        way(random.integers(0, 300, (2, batch)))
        begin = time.perf_counter()
        way(random.integers(0, 300, (2, batch)))
        counts.append(max(2, int(2 * SAMPLE / (time.perf_counter() - begin))))
    for _ in range(rounds):
        for n, (way, count) in enumerate(zip(ways, counts, strict=True)):
            order = random.integers(0, 300, (count, batch))
            begin = clock()
            way(order)
            found[n] = min(found[n], 1e3 * (clock() - begin) / count)
    return found


def main(
    chosen: Annotated[str, typer.Option("--networks")] = ",".join(NETWORKS),
    batches: str = "32",
    threads: int = 1,
    rounds: int = 3,
) -> None:
    """Print a table of both ways for each network and batch size."""
    table = Table(title=f"milliseconds for each step, {threads} threads", title_justify="left")
    for head in ("network", "batch", "in groups", "by instructions", "ratio", "GFLOP/s",
                 "estimated ratio"):  # fmt: skip
        table.add_column(head, justify="left" if head == "network" else "right")
    for name in chosen.split(","):
        network, sizes = _chosen(name, batches)
        loop = _loop(network, threads)
        for batch in sizes:
            estimate = costs.estimate(loop.program, batch, loop.split(batch))
            groups, instructions = milliseconds(network, loop, batch, threads, rounds)
            table.add_row(
                name, str(batch), f"{groups:.3f}", f"{instructions:.3f}",
                f"{instructions / groups:.2f}", f"{loop.program.flops * batch / groups / 1e6:.1f}",
                f"{estimate.by_instructions / estimate.in_groups:.2f}",
            )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
