"""Pooling and normalisation of images."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pareo.backends.cuda.nhwc.lowering import Lowering
from pareo.backends.cuda.nhwc.rules.activation import channel_sum, with_sums
from pareo.backends.cuda.nhwc.rules.normalise_pool import defer_pool_back, pool_normalised
from pareo.backends.cuda.nhwc.rules.table import rule
from pareo.program.ir import Instruction
from pareo.spec import Spec

MOST_CHANNELS = 4096  # of normalised images: a pixel must fit into shared memory


def _key(x: int, how: Mapping[str, Any]) -> tuple[object, ...]:
    return x, tuple(sorted((name, value) for name, value in how.items()))


@rule
def max_pool(lowering: Lowering, pool: Instruction) -> bool:
    x, how = pool.inputs[0], dict(pool.attributes)
    if not lowering.is_image(x):
        return False
    if pool_normalised(lowering, pool):
        return True
    operands, result = (lowering.contiguous_working(x),), pool.outputs[0]
    backs = [
        lowering.program.instructions[p]
        for p in lowering.reader_positions[x]
        if lowering.program.instructions[p].name == "max_pool_gradient"
    ]
    backs = [b for b in backs if b.inputs[1] == x and dict(b.attributes) == how]
    if not backs or how["size"][0] * how["size"][1] > 254:
        return lowering.add_working("max_pool_forward", operands, result, flops=pool.flops, **how)
    relu = all(following_relu_gradient(lowering, back) is not None for back in backs)
    spec = lowering.working_spec(result)
    found = lowering.add(
        "max_pool_with_indices", operands, spec, Spec(spec.shape, "uint8"),
        flops=pool.flops, relu=relu, **how,
    )  # fmt: skip
    lowering.working[result] = found[0]
    lowering.pool_indices[_key(x, how)] = found[1], relu
    return True


def following_relu_gradient(lowering: Lowering, back: Instruction) -> Instruction | None:
    """The relu gradient that directly follows a gradient and reads the same images, if any."""
    relu = lowering.only_reader(back.outputs[0])
    same = relu is not None and relu.name == "relu_gradient" and relu.inputs[1] == back.inputs[1]
    return relu if same else None


@rule
def max_pool_gradient(lowering: Lowering, back: Instruction) -> bool:
    g, x = back.inputs
    how = dict(back.attributes)
    if defer_pool_back(lowering, back):
        return True
    if _key(x, how) not in lowering.pool_indices:
        return False
    places, through_relu = lowering.pool_indices[_key(x, how)]
    operands = lowering.as_working(g), places
    if not through_relu:
        return lowering.add_working(
            "max_pool_back", operands, back.outputs[0], flops=back.flops, **how
        )
    relu = following_relu_gradient(lowering, back)
    assert relu is not None
    result, flops = relu.outputs[0], back.flops + relu.flops
    sums = channel_sum(lowering, result)
    lowering.mark_done(relu, sums)
    if sums is None:
        return lowering.add_working("max_pool_back", operands, result, flops=flops, **how)
    flops += sums.flops
    return with_sums(lowering, "max_pool_bias_back", operands, result, sums, flops=flops, **how)


@rule
def average_pool(lowering: Lowering, pool: Instruction) -> bool:
    x = pool.inputs[0]
    if not lowering.is_image(x):
        return False
    operands = (lowering.contiguous_working(x),)
    more = dict(pool.attributes, flops=pool.flops)
    return lowering.add_working("average_pool_forward", operands, pool.outputs[0], **more)


@rule
def average_pool_gradient(lowering: Lowering, back: Instruction) -> bool:
    operands = (lowering.contiguous_working(back.inputs[0]),)
    more = dict(back.attributes, flops=back.flops)
    return lowering.add_working("average_pool_back", operands, back.outputs[0], **more)


@rule
def lrn(lowering: Lowering, lrn: Instruction) -> bool:
    x = lrn.inputs[0]
    if not lowering.is_image(x) or lowering.program.specs[x].shape[1] > MOST_CHANNELS:
        return False
    operands = (lowering.contiguous_working(x),)
    more = dict(lrn.attributes, flops=lrn.flops)
    return lowering.add_working("lrn_forward", operands, lrn.outputs[0], **more)


@rule
def lrn_gradient(lowering: Lowering, back: Instruction) -> bool:
    g, x = back.inputs
    if not lowering.is_image(x) or lowering.program.specs[x].shape[1] > MOST_CHANNELS:
        return False
    operands = lowering.contiguous_working(g), lowering.contiguous_working(x)
    how, result = dict(back.attributes), back.outputs[0]
    relu = following_relu_gradient(lowering, back)
    sums = channel_sum(lowering, relu.outputs[0]) if relu else None
    wide = lowering.program.specs[x].shape[1] * lowering.dtype.itemsize % 16 == 0
    if relu is None or sums is None or how["size"] != 5 or not wide:
        return lowering.add_working("lrn_back", operands, result, flops=back.flops, **how)
    lowering.mark_done(relu, sums)
    result, flops = relu.outputs[0], back.flops + relu.flops + sums.flops
    return with_sums(lowering, "lrn_relu_bias_back", operands, result, sums, flops=flops, **how)


@rule
def mean(lowering: Lowering, mean: Instruction) -> bool:
    """The mean over all pixels."""
    x, result = mean.inputs[0], mean.outputs[0]
    if not lowering.is_image(x) or mean.attributes["axis"] != (2, 3):
        return False
    count, height, width, channels = lowering.working_spec(x).shape
    operands, size = (lowering.contiguous_working(x),), (height, width)
    how = {"size": size, "stride": size, "padding": (0, 0, 0, 0), "ceil": False}
    spec = Spec((count, 1, 1, channels), lowering.dtype)
    (found,) = lowering.add("average_pool_forward", operands, spec, flops=mean.flops, **how)
    wanted = lowering.working_spec(result)
    lowering.working[result] = found if wanted == spec else lowering.reshape(found, wanted)
    return True


@rule
def broadcast(lowering: Lowering, repeat: Instruction) -> bool:
    """One value for all pixels: the gradient of the mean over them."""
    x, result = repeat.inputs[0], repeat.outputs[0]
    before, after = lowering.program.specs[x], lowering.program.specs[result]
    if after.ndim != 4 or before.shape != (*after.shape[:2], 1, 1) or before.dtype != np.float32:
        return False
    if not any(map(lowering.is_image, _reads_beside(lowering, result))):
        return False
    operands = (lowering.as_working(x),)
    return lowering.add_working("broadcast_pixels", operands, result, flops=repeat.flops)


def _reads_beside(lowering: Lowering, number: int) -> list[int]:
    """What the readers of a value read besides it."""
    reading = [lowering.program.instructions[p] for p in lowering.reader_positions[number]]
    return [other for one in reading for other in one.inputs if other != number]
