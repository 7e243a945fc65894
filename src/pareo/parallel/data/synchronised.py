"""Batch normalisation by the statistics of the whole batch, of which each worker has some rows.

A gradient program is changed before it is compiled: wherever it normalises, the workers exchange
the count, mean and squared deviations of their rows, and in the backward pass two sums. All of them
add up in the order of ranks. The kernels are NumPy's, on every CPU device.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from pareo.errors import PareoError
from pareo.nn.network import Sequential
from pareo.nn.normalisation import BatchNorm
from pareo.parallel.group.shared_memory import SharedArrays
from pareo.parallel.group.worker_group import WorkerGroup
from pareo.program import Program
from pareo.program.ir import Instruction
from pareo.program.kernel import Fusion, Kernel
from pareo.spec import Spec

FORWARD, BACKWARD = "batch_norm", "batch_norm_gradient"


class SumExchange:
    """Lets each worker see the numbers of all others at the same instruction of its program.

    There are two sets of numbers, because a worker may be one exchange ahead of one that still
    reads. Each set begins with the place in the program, so that no two places can be confused.
    """

    def __init__(self, group: WorkerGroup, shared: SharedArrays) -> None:
        self._group, self._held, self._number = group, shared["sums"], 0

    def __call__(self, place: int, own: np.ndarray) -> np.ndarray:
        """The numbers of all workers, a row each."""
        held = self._held[self._number % 2, :, : 1 + len(own)]
        self._number += 1
        held[self._group.rank, 0] = place
        held[self._group.rank, 1:] = own
        self._group.barrier()
        if (held[:, 0] != place).any():
            raise PareoError("workers normalise in different places of their programs")
        return held[:, 1:]

    @staticmethod
    def specs(network: Sequential, workers: int) -> dict[str, Spec]:
        """The array that the workers must share."""
        layers = network.walk(network.inputs)
        channels = [shape[0] for _, layer, shape in layers if isinstance(layer, BatchNorm)]
        return {"sums": Spec((2, workers, 2 + 2 * max(channels, default=0)), "float64")}


def synchronised(program: Program, rows: int, batch: int, exchange: SumExchange) -> Program:
    """A gradient program of some rows that normalises by the statistics of the whole batch."""
    made = {number: i for i in program.instructions for number in i.outputs}
    constants, specs = dict(program.constants), dict(program.specs)
    found: list[Instruction] = []
    for place, instruction in enumerate(program.instructions):
        if instruction.name == FORWARD:
            found.append(_with(instruction, _forward(exchange, place)))
        elif instruction.name == BACKWARD:
            found.append(_with(instruction, _backward(exchange, place)))
        elif _scales_variance(instruction, made):
            # The running variance is that of a sample: the layer multiplied by n / (n - 1).
            source = made[instruction.inputs[1]]
            x = specs[source.inputs[0]]
            part = x.size // x.shape[1]
            whole = part // rows * batch
            share = constants[instruction.inputs[0]] * ((part - 1) / part * whole / (whole - 1))
            number = max(specs) + 1
            constants[number] = np.asarray(share, x.dtype)
            specs[number] = specs[instruction.inputs[0]]
            found.append(replace(instruction, inputs=(number, instruction.inputs[1])))
        else:
            found.append(instruction)
    return program.changed(instructions=tuple(found), constants=constants, specs=specs)


def _scales_variance(instruction: Instruction, made: dict[int, Instruction]) -> bool:
    """Whether an instruction computes the share of a running variance that is new."""
    if instruction.name != "scale":
        return False
    source = made.get(instruction.inputs[1])
    return (
        source is not None
        and source.name == FORWARD
        and source.outputs.index(instruction.inputs[1]) == 2
    )


def _with(instruction: Instruction, function: Callable[..., None]) -> Instruction:
    kernel = Kernel(function)
    name = f"synchronised_{instruction.name}"
    return replace(instruction, operator=Fusion(name, "", (), (), kernel))


def _forward(exchange: SumExchange, place: int) -> Callable[..., None]:
    def run(out: Any, x: Any, scale: Any, shift: Any, epsilon: float) -> None:
        y, mean, variance = out
        axes, channels = _others(x), x.shape[1]
        count = x.size // channels
        own = x.mean(axis=axes, dtype=np.float64)
        spread = np.square(x - _wide(own, x)).sum(axis=axes, dtype=np.float64)
        every = exchange(place, np.concatenate([[count], own, spread]))
        counts, means, spreads = every[:, :1], every[:, 1 : 1 + channels], every[:, 1 + channels :]
        whole = (counts * means).sum(axis=0) / counts.sum()
        total = (spreads + counts * np.square(means - whole)).sum(axis=0) / counts.sum()
        mean[...], variance[...] = whole, total
        factor = scale / np.sqrt(total + epsilon)
        y[...] = (x - _wide(whole, x)) * _wide(factor, x) + _wide(shift, x)

    return run


def _backward(exchange: SumExchange, place: int) -> Callable[..., None]:
    def run(out: Any, g: Any, x: Any, scale: Any, mean: Any, variance: Any, epsilon: float) -> None:
        dx, dscale, dshift = out
        axes, channels = _others(x), x.shape[1]
        inverse = 1 / np.sqrt(variance.astype(np.float64) + epsilon)
        normal = (x - _wide(mean, x)) * _wide(inverse, x)
        shifts, scales = (
            a.sum(axis=axes, dtype=np.float64) for a in (g, g * normal)
        )  # those of this worker's rows: other workers add their own
        every = exchange(place, np.concatenate([[x.size // channels], shifts, scales]))
        sums = every.sum(axis=0)
        even, slope = sums[1 : 1 + channels] / sums[0], sums[1 + channels :] / sums[0]
        dscale[...], dshift[...] = scales, shifts
        dx[...] = (g - _wide(even, x) - normal * _wide(slope, x)) * _wide(scale * inverse, x)

    return run


def _others(x: Any) -> tuple[int, ...]:
    """All axes but that of the channels."""
    return tuple(axis for axis in range(x.ndim) if axis != 1)


def _wide(vector: Any, x: Any) -> Any:
    """One number for each channel, in a shape that broadcasts with x."""
    return np.reshape(vector, (1, -1, *[1] * (x.ndim - 2)))
