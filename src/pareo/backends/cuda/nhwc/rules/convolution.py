"""Convolutions: with bias and activation in one, and a first layer as blocks of pixels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo.backends.cuda.nhwc.conv.convolution import convolution
from pareo.backends.cuda.nhwc.conv.input_gradient_as_forward import forward_of
from pareo.backends.cuda.nhwc.lowering import Lowering
from pareo.backends.cuda.nhwc.rules.table import rule
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


@dataclass
class _Layer:
    """A convolution with the bias and the activation that follow it, if they do."""

    result: int
    flops: int
    bias: tuple[int, ...] = ()
    ending: str = ""
    taken: tuple[Instruction, ...] = ()


def _layer(lowering: Lowering, conv: Instruction) -> _Layer:
    layer = _Layer(conv.outputs[0], conv.flops)
    add = lowering.only_reader(layer.result)
    if add is None or add.name != "add_bias" or add.inputs[0] != layer.result:
        return layer
    if add.inputs[1] not in lowering.plain:
        return layer
    layer = _Layer(add.outputs[0], conv.flops + add.flops, add.inputs[1:], "bias", (add,))
    relu = lowering.only_reader(layer.result)
    if relu is None or relu.name != "relu":
        return layer
    flops = layer.flops + relu.flops
    return _Layer(relu.outputs[0], flops, layer.bias, "bias_relu", (add, relu))


@rule
def conv(lowering: Lowering, conv: Instruction) -> bool:
    x, w = conv.inputs
    how, layer = dict(conv.attributes), _layer(lowering, conv)
    result, ending, out = layer.result, layer.ending, lowering.spec(layer.result)
    block = _block(lowering, x, lowering.old.specs[w].shape, how)
    if block:
        shapes = lowering.old.specs[w].shape, lowering.old.specs[result].shape
        images, filters = _blocked(lowering, x, *shapes, block)
        new = {**ONE_STEP, "precision": lowering.precision}
    else:
        images, filters, new = lowering.spec(x), lowering.spec(w), _plain_how(lowering, how)

    def possible(ending: str) -> bool:
        three = images, filters, out
        return lowering.possible(convolution("result", *three, ending=ending, **new))

    together = possible(ending)
    if not (together or possible("")):  # the bias can be added afterwards
        return False
    if block:
        operands = _into_blocks(lowering, x, w, images, filters, block, how["padding"])
    else:
        operands = lowering.whole(x), lowering.as_working(w)
    lowering.take(*layer.taken)
    if together:
        operands += tuple(map(lowering.as_working, layer.bias))
        more: dict[str, Any] = {"flops": layer.flops, "ending": ending, **new}
        return lowering.fresh("conv_forward", operands, result, **more)
    more = {"flops": conv.flops, "ending": "", **new}
    (bare,) = lowering.add("conv_forward", operands, out, **more)
    numbers = tuple(lowering.plain[n] for n in layer.bias)
    flops, relu = layer.flops - conv.flops, ending == "bias_relu"
    return lowering.fresh("bias_forward", (bare, *numbers), result, flops=flops, relu=relu)


def _into_blocks(
    lowering: Lowering, x: int, w: int, images: Spec, filters: Spec, block: int, padding: Any
) -> tuple[int, ...]:
    """A first layer's images and filters as blocks of pixels."""
    key = (x, padding, images)
    if key not in lowering.blocks:
        (lowering.blocks[key],) = lowering.add(
            "image_blocks", (lowering.as_plain(x),), images, block=block, padding=padding
        )
    (blocks,) = lowering.add("filter_blocks", (lowering.as_plain(w),), filters, block=block)
    return lowering.blocks[key], blocks


@rule
def conv_input_gradient(lowering: Lowering, back: Instruction) -> bool:
    g, w = back.inputs
    result = back.outputs[0]
    new = _plain_how(lowering, back.attributes)
    one = convolution("images", lowering.spec(result), lowering.spec(w), lowering.spec(g), **new)
    if not lowering.possible(one):
        return False
    operands = lowering.whole(g), lowering.as_working(w)
    forward = forward_of(one) if lowering.turning(one) else None
    if forward is None:
        return lowering.fresh("conv_images", operands, result, flops=back.flops, **new)
    filters, *window, channels = lowering.spec(w).shape
    turned = lowering.add(
        "turned_filters", operands[1:], Spec((channels, *window, filters), lowering.dtype)
    )
    new |= {"padding": forward.padding, "ending": "", "flops": back.flops}
    return lowering.fresh("conv_forward", (operands[0], *turned), result, **new)


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
    operands = lowering.whole(x), lowering.whole(g)
    return lowering.fresh("conv_filters", operands, result, flops=back.flops, **new)
