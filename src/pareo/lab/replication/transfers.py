"""A training step, operator by operator, with and without moving its arrays to a GPU and back."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pareo import op
from pareo.device import Device, cores, why_unavailable
from pareo.moving import to_device, to_host
from pareo.nn.network import Sequential
from pareo.program.ir import Program
from pareo.training.step import step_program

REPEATS = 5
RATE = 0.01


def steps(network: Sequential, batch: int) -> dict[str, float]:
    """What the calls of a step move and compute, and microseconds of a step in each way.

    >>> from pareo.nn import networks
    >>> found = steps(networks.mlp([784, 4, 10], activation="sigmoid"), 2)
    >>> found["resident"], found["calls"] > 10, found["vectorized us"] > 0
    (6292.0, True, True)
    """
    program = step_program(network, batch)
    calls, moved = moved_by(program)
    found = {
        "calls": float(calls),
        "bytes a call": moved / calls,
        "flops a call": program.flops / calls,
        "resident": float(batch * (4 * int(np.prod(network.inputs)) + 8) + 4),
    }
    ways = {"vectorized": ("vectorized", False)}
    if not why_unavailable("cuda"):
        ways |= {"cuda, moved": ("cuda", True), "cuda, stays": ("cuda", False)}
    for name, (device, moving) in ways.items():
        found[f"{name} us"] = 1e6 * _best(_step(program, network, batch, device, moving))
    return found


def moved_by(program: Program) -> tuple[int, int]:
    """Calls of a program, and bytes if each moves its operands there and its results back."""
    instructions = program.instructions
    numbers = [number for one in instructions for number in (*one.inputs, *one.outputs)]
    return len(instructions), sum(program.specs[number].nbytes for number in numbers)


def one_by_one(program: Program, arguments: list[Any], moving: bool) -> list[Any]:
    """Run a program operator by operator on the device in scope."""
    values = dict(zip(program.inputs, arguments, strict=True))
    values |= {n: a if moving else to_device(a) for n, a in program.constants.items()}
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


def _step(
    program: Program, network: Sequential, batch: int, name: str, moving: bool
) -> Callable[[], Any]:
    """One step on a device; it ends when the loss has come back."""
    device = Device(name, threads=cores())
    random = np.random.default_rng(0)
    images = random.random((batch, *network.inputs), dtype=np.float32)
    labels = random.integers(0, network.classes, batch)
    arguments = [*network.initialise(0).values(), images, labels, np.asarray(RATE, np.float32)]
    with device:
        if not moving:
            arguments = [to_device(a) for a in arguments]

    def run() -> Any:
        with device:
            return to_host(one_by_one(program, arguments, moving)[0])

    return run


def _best(function: Callable[[], Any], calls: int = 10) -> float:
    """Seconds of a call, the least of some repeats."""
    function()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - start) / calls)
    return min(times)
