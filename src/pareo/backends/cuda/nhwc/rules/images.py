"""Pooling and normalisation of images."""

from collections.abc import Mapping
from typing import Any

from pareo.backends.cuda.nhwc.lowering import Lowering
from pareo.backends.cuda.nhwc.rules.activation import channel_sum, with_sums
from pareo.backends.cuda.nhwc.rules.table import rule
from pareo.program.ir import Instruction
from pareo.spec import Spec

MOST_CHANNELS = 4096  # of normalised images: they must fit into shared memory


def _key(x: int, how: Mapping[str, Any]) -> Any:
    return x, tuple(sorted((name, value) for name, value in how.items()))


@rule
def max_pool(lowering: Lowering, pool: Instruction) -> bool:
    x, how = pool.inputs[0], dict(pool.attributes)
    if not lowering.is_image(x):
        return False
    operands, result = (lowering.whole(x),), pool.outputs[0]
    backs = [
        lowering.old.instructions[p]
        for p in lowering.reading[x]
        if lowering.old.instructions[p].name == "max_pool_gradient"
    ]
    backs = [b for b in backs if b.inputs[1] == x and dict(b.attributes) == how]
    if not backs or how["size"][0] * how["size"][1] > 254:
        return lowering.fresh("max_pool_forward", operands, result, flops=pool.flops, **how)
    relu = all(then_relu(lowering, back) is not None for back in backs)
    spec = lowering.spec(result)
    found = lowering.add(
        "max_pool_places", operands, spec, Spec(spec.shape, "uint8"),
        flops=pool.flops, relu=relu, **how,
    )  # fmt: skip
    lowering.working[result] = found[0]
    lowering.places[_key(x, how)] = found[1], relu
    return True


def then_relu(lowering: Lowering, back: Instruction) -> Instruction | None:
    """The way back through relu right behind a way back, if it is by the same images."""
    relu = lowering.only_reader(back.outputs[0])
    same = relu is not None and relu.name == "relu_gradient" and relu.inputs[1] == back.inputs[1]
    return relu if same else None


@rule
def max_pool_gradient(lowering: Lowering, back: Instruction) -> bool:
    g, x = back.inputs
    how = dict(back.attributes)
    if _key(x, how) not in lowering.places:
        return False
    places, through_relu = lowering.places[_key(x, how)]
    operands = lowering.as_working(g), places
    if not through_relu:
        return lowering.fresh("max_pool_back", operands, back.outputs[0], flops=back.flops, **how)
    relu = then_relu(lowering, back)
    assert relu is not None
    result, flops = relu.outputs[0], back.flops + relu.flops
    sums = channel_sum(lowering, result)
    lowering.take(relu, sums)
    if sums is None:
        return lowering.fresh("max_pool_back", operands, result, flops=flops, **how)
    flops += sums.flops
    return with_sums(lowering, "max_pool_bias_back", operands, result, sums, flops=flops, **how)


@rule
def average_pool(lowering: Lowering, pool: Instruction) -> bool:
    x = pool.inputs[0]
    if not lowering.is_image(x):
        return False
    operands = (lowering.whole(x),)
    more = dict(pool.attributes, flops=pool.flops)
    return lowering.fresh("average_pool_forward", operands, pool.outputs[0], **more)


@rule
def average_pool_gradient(lowering: Lowering, back: Instruction) -> bool:
    operands = (lowering.whole(back.inputs[0]),)
    more = dict(back.attributes, flops=back.flops)
    return lowering.fresh("average_pool_back", operands, back.outputs[0], **more)


@rule
def lrn(lowering: Lowering, lrn: Instruction) -> bool:
    x = lrn.inputs[0]
    if not lowering.is_image(x) or lowering.old.specs[x].shape[1] > MOST_CHANNELS:
        return False
    operands = (lowering.whole(x),)
    more = dict(lrn.attributes, flops=lrn.flops)
    return lowering.fresh("lrn_forward", operands, lrn.outputs[0], **more)


@rule
def lrn_gradient(lowering: Lowering, back: Instruction) -> bool:
    g, x = back.inputs
    if not lowering.is_image(x) or lowering.old.specs[x].shape[1] > MOST_CHANNELS:
        return False
    operands = lowering.whole(g), lowering.whole(x)
    how, result = dict(back.attributes), back.outputs[0]
    relu = then_relu(lowering, back)
    sums = channel_sum(lowering, relu.outputs[0]) if relu else None
    wide = lowering.old.specs[x].shape[1] * lowering.dtype.itemsize % 16 == 0
    if relu is None or sums is None or how["size"] != 5 or not wide:
        return lowering.fresh("lrn_back", operands, result, flops=back.flops, **how)
    lowering.take(relu, sums)
    result, flops = relu.outputs[0], back.flops + relu.flops + sums.flops
    return with_sums(lowering, "lrn_relu_bias_back", operands, result, sums, flops=flops, **how)
