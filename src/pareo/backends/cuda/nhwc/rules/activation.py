"""The backward pass of activations and biases, in one kernel."""

from typing import Any

import numpy as np

from pareo.backends.cuda.nhwc.kernels.bias import partial_sums
from pareo.backends.cuda.nhwc.lowering import Lowering
from pareo.backends.cuda.nhwc.rules.normalise_back import defer_activation_back
from pareo.backends.cuda.nhwc.rules.table import rule
from pareo.program.ir import Instruction


def channel_sum(lowering: Lowering, number: int) -> Instruction | None:
    """The instruction that sums a value over everything but its channels."""
    axes = tuple(axis for axis in range(lowering.program.specs[number].ndim) if axis != 1)
    return lowering.reader(number, "sum", axis=axes, keepdims=False)


def is_working(lowering: Lowering, number: int) -> bool:
    """Whether a value exists in its working form, as images or as a matrix in bfloat16."""
    reduced = lowering.dtype != np.float32 and lowering.program.specs[number].ndim == 2
    return lowering.is_image(number) or (reduced and number in lowering.working)


def with_sums(
    lowering: Lowering,
    name: str,
    operands: tuple[int, ...],
    result: int,
    sums: Instruction,
    **more: Any,
) -> bool:
    """Add a backward instruction, and the sums of its result over everything but the channels."""
    spec = lowering.working_spec(result)
    made = lowering.add(name, operands, spec, partial_sums(spec), **more)
    lowering.working[result] = made[0]
    return _add_sums(lowering, made[1], sums)


def _add_sums(lowering: Lowering, partial: int, sums: Instruction) -> bool:
    number = sums.outputs[0]
    (lowering.plain[number],) = lowering.add("add_sums", (partial,), lowering.program.specs[number])
    return True


@rule
def relu_gradient(lowering: Lowering, back: Instruction) -> bool:
    return defer_activation_back(lowering, back, back.inputs[1], _relu_gradient) or (
        _relu_gradient(lowering, back)
    )


def _relu_gradient(lowering: Lowering, back: Instruction) -> bool:
    g, y = back.inputs
    result = back.outputs[0]
    if not is_working(lowering, y):
        return False
    sums = channel_sum(lowering, result)
    if sums is None:
        operands = lowering.as_working(g), lowering.contiguous_working(y)
        return lowering.add_working("relu_back", operands, result, flops=back.flops)
    lowering.mark_done(sums)
    gradients = tuple(map(lowering.as_working, lowering.concatenated.pop(g, (g,))))
    several = (lowering.contiguous_working(y), *gradients)
    flops = back.flops + sums.flops
    return with_sums(lowering, "relu_bias_back", several, result, sums, flops=flops)


@rule
def sum_(lowering: Lowering, fold: Instruction) -> bool:
    g = fold.inputs[0]
    partial = lowering.partials.get(g)
    if partial is not None and channel_sum(lowering, g) is fold:
        return _add_sums(lowering, partial, fold)
    if not is_working(lowering, g) or channel_sum(lowering, g) is not fold:
        return False
    spec, operands = partial_sums(lowering.working_spec(g)), (lowering.as_working(g),)
    (partial,) = lowering.add("bias_back", operands, spec, flops=fold.flops)
    return _add_sums(lowering, partial, fold)
