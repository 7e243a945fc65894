"""The way back through activations and biases, in one pass."""

from typing import Any

import numpy as np

from pareo.backends.cuda.nhwc.kernels.bias import partial_sums
from pareo.backends.cuda.nhwc.lowering import Lowering
from pareo.backends.cuda.nhwc.rules.table import rule
from pareo.program.ir import Instruction


def channel_sum(lowering: Lowering, number: int) -> Instruction | None:
    """The instruction that sums a value over everything but its channels."""
    axes = tuple(axis for axis in range(lowering.old.specs[number].ndim) if axis != 1)
    return lowering.reader(number, "sum", axis=axes, keepdims=False)


def in_work(lowering: Lowering, number: int) -> bool:
    """Whether a value is images in their working form, or anything in a precision of its own."""
    reduced = lowering.dtype != np.float32 and lowering.old.specs[number].ndim == 2
    return lowering.is_image(number) or (reduced and number in lowering.working)


def with_sums(
    lowering: Lowering,
    name: str,
    operands: tuple[int, ...],
    result: int,
    sums: Instruction,
    **more: Any,
) -> bool:
    """A way back, and the sums of its result over everything but the channels."""
    spec = lowering.spec(result)
    made = lowering.add(name, operands, spec, partial_sums(spec), **more)
    lowering.working[result] = made[0]
    return _add_sums(lowering, made[1], sums)


def _add_sums(lowering: Lowering, partial: int, sums: Instruction) -> bool:
    number = sums.outputs[0]
    (lowering.plain[number],) = lowering.add("add_sums", (partial,), lowering.old.specs[number])
    return True


@rule
def relu_gradient(lowering: Lowering, back: Instruction) -> bool:
    g, y = back.inputs
    result = back.outputs[0]
    if not in_work(lowering, y):
        return False
    sums = channel_sum(lowering, result)
    if sums is None:
        operands = lowering.as_working(g), lowering.whole(y)
        return lowering.fresh("relu_back", operands, result, flops=back.flops)
    lowering.take(sums)
    gradients = tuple(map(lowering.as_working, lowering.beside.pop(g, (g,))))
    several = (lowering.whole(y), *gradients)
    flops = back.flops + sums.flops
    return with_sums(lowering, "relu_bias_back", several, result, sums, flops=flops)


@rule
def sum_(lowering: Lowering, fold: Instruction) -> bool:
    g = fold.inputs[0]
    if not in_work(lowering, g) or channel_sum(lowering, g) is not fold:
        return False
    spec, operands = partial_sums(lowering.spec(g)), (lowering.as_working(g),)
    (partial,) = lowering.add("bias_back", operands, spec, flops=fold.flops)
    return _add_sums(lowering, partial, fold)
