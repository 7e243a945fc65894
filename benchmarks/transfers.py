"""Time a training step on a GPU with and without moving its arrays: the second paper's puzzle.

    python -m benchmarks.transfers

The paper's GPU was slower than NumPy because every call moved its arrays. This benchmark times one
step of a small network (784, width, 10) at batch 128 in five ways: operator by operator in NumPy
(`vectorized`); on the GPU with the operands and results of each operator moved there and back, as
in the paper; on the GPU with all arrays staying there; and many steps in one call, as `fit` runs
them, on the CPU (`compiled`) and on the GPU.
"""

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from pareo.cli import options, run
from pareo.device import Device, cores
from pareo.lab.replication.transfers import one_by_one
from pareo.moving import to_device, to_host, transfers
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.training.step import Step, step_program

BATCH = 128
WAYS = ("vectorized", "cuda, moved", "cuda, stays", "compiled, step", "cuda, step")


def best_of(function: Callable[[], Any], calls: int, repeats: int = 5) -> float:
    """Seconds of a call, the minimum over some repeats of several calls."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - start) / calls)
    return min(times)


def way_of(name: str, network: Sequential) -> tuple[Callable[[], Any], int]:
    """A function that trains in the named way, and how many steps it runs."""
    where, how = (*name.split(", "), "")[:2]
    device = Device(where, threads=cores())
    random = np.random.default_rng(0)
    images = random.random((8 * BATCH, *network.inputs), dtype=np.float32)
    labels = random.integers(0, network.classes, len(images))
    with device:
        if how == "step":
            step = Step(network, BATCH, device)
            weights, x, y = to_device((network.initialise(0), images, labels))
            order = random.permutation(np.tile(np.arange(len(images)), 8)).reshape(-1, BATCH)

            def steps() -> Any:
                with device:
                    return step.run(weights, {}, x, y, order, 0.01)

            return steps, len(order)
        program = step_program(network, BATCH)
        arguments = [*network.initialise(0).values(), images[:BATCH], labels[:BATCH]]
        arguments.append(np.asarray(0.01, np.float32))
        if how == "stays":
            arguments = [to_device(a) for a in arguments]

    def run() -> Any:
        with device:
            found = one_by_one(program, arguments, how == "moved")
            return to_host(found[0])  # the loss: all is done

    return run, 1


def table(widths: Sequence[int], ways: Sequence[str]) -> Table:
    """Microseconds of a step for each width, the bytes moved, and the fastest way."""
    made = Table(
        title=f"a training step of a network 784, width, 10, batch {BATCH}: microseconds",
        title_justify="left",
    )
    for head in ("width", *ways, "moved, kB", "fastest"):
        made.add_column(head, justify="right")
    for width in widths:
        network = networks.mlp([784, width, 10], activation="sigmoid")
        times, moved = {}, 0
        for name in ways:
            run, steps = way_of(name, network)
            run()
            with transfers() as seen:
                run()
            if name.endswith("moved"):
                moved = seen.to_device.bytes + seen.to_host.bytes
            times[name] = best_of(run, 3) / steps
        fastest = min(times, key=lambda name: times[name])
        cells = [f"{seconds * 1e6:.4g}" for seconds in times.values()]
        made.add_row(str(width), *cells, f"{moved / 1e3:.0f}" if moved else "", fastest)
    return made


def main(
    widths: Annotated[str, typer.Option(help="Hidden units, as in 4,256.")] = "4,32,256,2048",
    ways: Annotated[str, typer.Option(help="Ways separated by semicolons.")] = "; ".join(WAYS),
) -> None:
    """Time a training step on a GPU with and without moving its arrays."""
    chosen = tuple(name.strip() for name in ways.split(";"))
    for name in chosen:
        options.check_choice("--ways", name, WAYS)
    Console(width=140).print(table(options.numbers("--widths", widths), chosen))


if __name__ == "__main__":
    run(lambda: typer.run(main))
