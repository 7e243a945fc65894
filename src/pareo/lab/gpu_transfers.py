"""The second paper's puzzle: a GPU that was slower than NumPy, because every call moved its arrays.

One training step of a small network (784, width, 10), batch 128: operator by operator with NumPy
(`vectorized`); on the card with every operator's operands and result moved there and back, as the
paper had it; on the card with everything staying there; and as this library runs it, many steps in
one call, on the CPU (`compiled`) and on the card.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.table import Table

from pareo import op
from pareo.device import Device, cores
from pareo.moving import to_device, to_host, transfers
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.training.step import Step, step_program

WIDTHS = (4, 32, 256, 2048)
BATCH = 128
WAYS = ("vectorized", "cuda, moved", "cuda, stays", "compiled, step", "cuda, step")


def one_by_one(program: Any, arguments: list[Any], moving: bool) -> list[Any]:
    """Run a program operator by operator on the device in scope."""
    values = dict(zip(program.inputs, arguments, strict=True))
    values |= {n: to_device(a) if not moving else a for n, a in program.constants.items()}
    for instruction in program.instructions:
        operands = [values[n] for n in instruction.inputs]
        if moving:
            operands = [to_device(a) for a in operands]
        result = getattr(op, instruction.name)(*operands, **instruction.attributes)
        results = result if isinstance(result, tuple) else (result,)
        if moving:
            results = tuple(to_host(a) for a in results)
        values |= dict(zip(instruction.outputs, results, strict=True))
    return [values[n] for n in program.outputs]


def best_of(function: Callable[[], Any], calls: int, repeats: int = 5) -> float:
    """Seconds of a call: the least of a few, each of so many calls."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - start) / calls)
    return min(times)


def way_of(name: str, network: Sequential) -> tuple[Callable[[], Any], int]:
    """A function that trains on the device that a way is for, and how many steps it takes."""
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


def table(widths: tuple[int, ...] = WIDTHS, ways: tuple[str, ...] = WAYS) -> Table:
    """Microseconds a step for each width, what a moved step moves, and who wins."""
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
