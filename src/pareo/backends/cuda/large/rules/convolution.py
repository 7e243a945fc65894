"""Convolutions: with bias and activation in one, and a first layer as blocks of pixels."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pareo.backends.cuda.large.convolution import convolution
from pareo.backends.cuda.large.lowering import Lowering
from pareo.backends.cuda.large.rules.table import rule
from pareo.program.ir import Instruction
from pareo.spec import Spec

FEW_CHANNELS = 4  # so few that cuDNN is slow, and blocks of pixels help


def _block(lowering: Lowering, x: int, filters: tuple[int, ...], how: Mapping[str, Any]) -> int:
    """The side of the blocks that a first layer's pixels are put in; 0 for none."""
    stride = how["stride"][0]
    plain = how["stride"] == (stride, stride) and how["dilation"] == (1, 1) and how["groups"] == 1
    images = x in lowering.old.inputs and lowering.old.specs[x].dtype == np.float32
    few = filters[1] <= FEW_CHANNELS and stride > 1
    return stride if plain and images and few else 0


def _blocked(lowering: Lowering, x: int, filters: Any, out: Any, block: int) -> tuple[Spec, Spec]:
    """The specs of a first layer's images and filters as blocks of pixels."""
    images, channels = lowering.old.specs[x].shape[0], filters[1]
    many = 16 // lowering.dtype.itemsize
    wide = -(-channels * block * block // many) * many
    rows, columns = (-(-side // block) for side in filters[2:])
    blocks = Spec((images, out[2] + rows - 1, out[3] + columns - 1, wide), lowering.dtype)
    return blocks, Spec((filters[0], rows, columns, wide), lowering.dtype)


def _plain_how(lowering: Lowering, how: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: how[name] for name in ("stride", "padding", "dilation")}
    return {**kept, "precision": lowering.precision}


ONE_STEP = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1)}


@rule
def conv(lowering: Lowering, conv: Instruction) -> bool:
    x, w = conv.inputs
    how = dict(conv.attributes)
    result, flops, ending = conv.outputs[0], conv.flops, ""
    bias: tuple[int, ...] = ()
    add = lowering.only_reader(result)
    relu = None
    if add is not None and add.name == "add_bias" and add.inputs[0] == result:
        result, flops, ending, bias = add.outputs[0], flops + add.flops, "bias", add.inputs[1:]
        relu = lowering.only_reader(result)
        if relu is not None and relu.name == "relu":
            result, flops, ending = relu.outputs[0], flops + relu.flops, "bias_relu"
        else:
            relu = None
    else:
        add = None
    if not all(n in lowering.plain for n in bias):
        return False
    block = _block(lowering, x, lowering.old.specs[w].shape, how)
    if block:
        shapes = lowering.old.specs[w].shape, lowering.old.specs[result].shape
        images, filters = _blocked(lowering, x, *shapes, block)
        new = {**ONE_STEP, "precision": lowering.precision}
    else:
        images, filters, new = lowering.spec(x), lowering.spec(w), _plain_how(lowering, how)
    out = lowering.spec(result)
    endings = [ending, ""] if ending else [""]  # the bias can be added afterwards
    possible = [
        end for end in endings
        if lowering.possible(convolution("result", images, filters, out, ending=end, **new))
    ]  # fmt: skip
    if not possible:
        return False
    if block:
        key = (x, how["padding"], images)
        if key not in lowering.blocks:
            (lowering.blocks[key],) = lowering.add(
                "image_blocks", (lowering.as_plain(x),), images, block=block, padding=how["padding"]
            )
        (blocks,) = lowering.add("filter_blocks", (lowering.as_plain(w),), filters, block=block)
        operands: tuple[int, ...] = (lowering.blocks[key], blocks)
    else:
        operands = (lowering.whole(x), lowering.as_working(w))
    lowering.take(add, relu)
    if possible[0] == ending:
        numbers = tuple(lowering.as_working(n) for n in bias)
        more: dict[str, Any] = {"flops": flops, "ending": ending, **new}
        return lowering.fresh("conv_forward", (*operands, *numbers), result, **more)
    numbers = tuple(lowering.plain[n] for n in bias)
    more = {"flops": conv.flops, "ending": "", **new}
    (bare,) = lowering.add("conv_forward", operands, out, **more)
    more = {"flops": flops - conv.flops, "relu": relu is not None}
    return lowering.fresh("bias_forward", (bare, *numbers), result, **more)


@rule
def conv_input_gradient(lowering: Lowering, back: Instruction) -> bool:
    g, w = back.inputs
    result = back.outputs[0]
    new = _plain_how(lowering, back.attributes)
    specs = lowering.spec(result), lowering.spec(w), lowering.spec(g)
    if not lowering.possible(convolution("images", *specs, **new)):
        return False
    operands = lowering.whole(g), lowering.as_working(w)
    return lowering.fresh("conv_images", operands, result, flops=back.flops, **new)


@rule
def conv_weight_gradient(lowering: Lowering, back: Instruction) -> bool:
    x, g = back.inputs
    result = back.outputs[0]
    filters, out = lowering.old.specs[result].shape, lowering.old.specs[g].shape
    block = _block(lowering, x, filters, back.attributes)
    if block:
        specs = _blocked(lowering, x, filters, out, block)
        images = lowering.blocks.get((x, back.attributes["padding"], specs[0]))
        new = {**ONE_STEP, "precision": lowering.precision}
        if images is None or not lowering.possible(
            convolution("filters", *specs, lowering.spec(g), **new)
        ):
            return False
        operands = images, lowering.whole(g)
        (found,) = lowering.add("conv_filters", operands, specs[1], flops=back.flops, **new)
        (lowering.plain[result],) = lowering.add(
            "filters_of_blocks", (found,), lowering.old.specs[result], block=block
        )
        return True
    new = _plain_how(lowering, back.attributes)
    three = lowering.spec(x), lowering.spec(result), lowering.spec(g)
    if not lowering.possible(convolution("filters", *three, **new)):
        return False
    operands = (
        lowering.whole(x),
        lowering.whole(g),
    )
    return lowering.fresh("conv_filters", operands, result, flops=back.flops, **new)
