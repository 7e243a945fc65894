"""Convolutions: fused with bias and activation, and a first layer with space-to-depth."""

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

FEW_CHANNELS = 4  # with so few, cuDNN is slow and space-to-depth helps
MOST_FOLDED = 64  # channels of folded blocks


def _block(lowering: Lowering, x: int, filters: tuple[int, ...], how: Mapping[str, Any]) -> int:
    """The side of the blocks of pixels for a first layer's space-to-depth; 0 for none."""
    stride = how["stride"][0]
    plain = how["stride"] == (stride, stride) and how["dilation"] == (1, 1) and how["groups"] == 1
    images = x in lowering.program.inputs and lowering.program.specs[x].dtype == np.float32
    few = filters[1] <= FEW_CHANNELS and stride > 1
    return stride if plain and images and few else 0


def _fold(lowering: Lowering, filters: tuple[int, ...], block: int) -> int:
    """The neighbouring blocks that are counted as one: all of a window's row, or 1 for none.

    In bfloat16 cuDNN is three times as fast with windows of 4 x 1 on 48 channels as with 4 x 4 on
    12. In tf32 pareo has a kernel of its own for few channels.
    """
    columns = -(-filters[3] // block)
    few = filters[1] * block * block * columns <= MOST_FOLDED
    return columns if few and lowering.precision == "bfloat16" else 1


def _blocked(
    lowering: Lowering, x: int, filters: tuple[int, ...], out: tuple[int, ...], block: int
) -> tuple[Spec, Spec]:
    """The specs of a first layer's images and filters after space-to-depth."""
    images, channels = lowering.program.specs[x].shape[0], filters[1]
    vector, fold = 16 // lowering.dtype.itemsize, _fold(lowering, filters, block)
    wide = -(-channels * block * block * fold // vector) * vector
    rows, columns = (-(-side // block) for side in filters[2:])
    columns = 1 if fold > 1 else columns
    blocks = Spec((images, out[2] + rows - 1, out[3] + columns - 1, wide), lowering.dtype)
    return blocks, Spec((filters[0], rows, columns, wide), lowering.dtype)


def _conv_attributes(lowering: Lowering, how: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: how[name] for name in ("stride", "padding", "dilation")}
    return {**kept, "precision": lowering.precision}


ONE_STEP = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1)}


@dataclass
class _Layer:
    """A convolution, with the bias and activation that follow it, if any."""

    result: int
    flops: int
    bias: tuple[int, ...] = ()
    epilogue: str = ""
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
    result, epilogue, out = layer.result, layer.epilogue, lowering.working_spec(layer.result)
    block = _block(lowering, x, lowering.program.specs[w].shape, how)
    if block:
        shapes = lowering.program.specs[w].shape, lowering.program.specs[result].shape
        images, filters = _blocked(lowering, x, *shapes, block)
        new = {**ONE_STEP, "precision": lowering.precision}
    else:
        images, filters, new = (
            lowering.working_spec(x),
            lowering.working_spec(w),
            _conv_attributes(lowering, how),
        )

    def possible(epilogue: str) -> bool:
        three = images, filters, out
        return lowering.has_plan(convolution("result", *three, epilogue=epilogue, **new))

    fused = possible(epilogue)
    if not (fused or possible("")):  # the bias can be added by a separate kernel
        return False
    if block:
        operands = _space_to_depth(lowering, x, w, images, filters, block, how["padding"])
    else:
        operands = lowering.contiguous_working(x), lowering.as_working(w)
    lowering.mark_done(*layer.taken)
    if fused:
        operands += tuple(map(lowering.as_working, layer.bias))
        more: dict[str, Any] = {"flops": layer.flops, "epilogue": epilogue, **new}
        return lowering.add_working("conv_forward", operands, result, **more)
    more = {"flops": conv.flops, "epilogue": "", **new}
    (bare,) = lowering.add("conv_forward", operands, out, **more)
    numbers = tuple(lowering.plain[n] for n in layer.bias)
    flops, relu = layer.flops - conv.flops, epilogue == "bias_relu"
    return lowering.add_working("bias_forward", (bare, *numbers), result, flops=flops, relu=relu)


def _space_to_depth(
    lowering: Lowering,
    x: int,
    w: int,
    images: Spec,
    filters: Spec,
    block: int,
    padding: tuple[int, ...],
) -> tuple[int, ...]:
    """Add the space-to-depth of a first layer's images and filters."""
    key, fold = (x, padding, images), _fold(lowering, lowering.program.specs[w].shape, block)
    if key not in lowering.depth_images:
        (lowering.depth_images[key],) = lowering.add(
            "space_to_depth", (lowering.as_plain(x),), images, block=block, padding=padding,
            fold=fold,
        )  # fmt: skip
    (blocks,) = lowering.add(
        "filters_to_depth", (lowering.as_plain(w),), filters, block=block, fold=fold
    )
    return lowering.depth_images[key], blocks


@rule
def conv_input_gradient(lowering: Lowering, back: Instruction) -> bool:
    g, w = back.inputs
    result = back.outputs[0]
    new = _conv_attributes(lowering, back.attributes)
    one = convolution(
        "images",
        lowering.working_spec(result),
        lowering.working_spec(w),
        lowering.working_spec(g),
        **new,
    )
    if not lowering.has_plan(one):
        return False
    operands = lowering.contiguous_working(g), lowering.as_working(w)
    forward = forward_of(one) if lowering.as_forward(one) else None
    if forward is None:
        return lowering.add_working("conv_backward_data", operands, result, flops=back.flops, **new)
    filters, *window, channels = lowering.working_spec(w).shape
    flipped = lowering.add(
        "flipped_filters", operands[1:], Spec((channels, *window, filters), lowering.dtype)
    )
    new |= {"padding": forward.padding, "epilogue": "", "flops": back.flops}
    return lowering.add_working("conv_forward", (operands[0], *flipped), result, **new)


@rule
def conv_weight_gradient(lowering: Lowering, back: Instruction) -> bool:
    x, g = back.inputs
    result = back.outputs[0]
    filters, out = lowering.program.specs[result].shape, lowering.program.specs[g].shape
    block = _block(lowering, x, filters, back.attributes)
    if block:
        specs = _blocked(lowering, x, filters, out, block)
        images = lowering.depth_images.get((x, back.attributes["padding"], specs[0]))
        new = {**ONE_STEP, "precision": lowering.precision}
        if images is None or not lowering.has_plan(
            convolution("filters", *specs, lowering.working_spec(g), **new)
        ):
            return False
        operands = images, lowering.contiguous_working(g)
        (found,) = lowering.add("conv_backward_filter", operands, specs[1], flops=back.flops, **new)
        (lowering.plain[result],) = lowering.add(
            "filters_from_depth", (found,), lowering.program.specs[result], block=block,
            fold=_fold(lowering, filters, block),
        )  # fmt: skip
        return True
    new = _conv_attributes(lowering, back.attributes)
    three = lowering.working_spec(x), lowering.working_spec(result), lowering.working_spec(g)
    if not lowering.has_plan(convolution("filters", *three, **new)):
        return False
    operands = lowering.contiguous_working(x), lowering.contiguous_working(g)
    return lowering.add_working("conv_backward_filter", operands, result, flops=back.flops, **new)
