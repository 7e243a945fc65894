"""The way back through activations and biases, in one pass."""

import numpy as np

from pareo.backends.cuda.large.lowering import Lowering
from pareo.backends.cuda.large.rules.table import rule
from pareo.program.ir import Instruction


def channel_sum(lowering: Lowering, number: int) -> Instruction | None:
    """The instruction that sums a value over everything but its channels."""
    axes = tuple(axis for axis in range(lowering.old.specs[number].ndim) if axis != 1)
    return lowering.reader(number, "sum", axis=axes, keepdims=False)


def in_work(lowering: Lowering, number: int) -> bool:
    """Whether a value is images in their working form, or anything in a precision of its own."""
    reduced = lowering.dtype != np.float32 and lowering.old.specs[number].ndim == 2
    return lowering.is_image(number) or (reduced and number in lowering.working)


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
    specs = lowering.spec(result), lowering.old.specs[sums.outputs[0]]
    flops = back.flops + sums.flops
    gradients = tuple(map(lowering.as_working, lowering.beside.pop(g, (g,))))
    several = (lowering.whole(y), *gradients)
    found = lowering.add("relu_bias_back", several, *specs, flops=flops)
    lowering.working[result], lowering.plain[sums.outputs[0]] = found
    return True


@rule
def sum_(lowering: Lowering, fold: Instruction) -> bool:
    g = fold.inputs[0]
    if not in_work(lowering, g) or channel_sum(lowering, g) is not fold:
        return False
    result = fold.outputs[0]
    operands = (lowering.as_working(g),)
    found = lowering.add("bias_back", operands, lowering.old.specs[result], flops=fold.flops)
    (lowering.plain[result],) = found
    return True
