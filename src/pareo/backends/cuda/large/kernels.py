"""The instructions that a lowered program is made of, each a kernel on channels-last arrays.

Images are (N, H, W, C) here, in the working precision: float32, or bfloat16 where the device
computes in it. Biases and what the optimiser reads stay in float32.
"""

from typing import Any

import numpy as np

from pareo.backends.base import Fusion, Kernel
from pareo.backends.cuda import blas
from pareo.backends.cuda.large import cudnn, launch, plans
from pareo.backends.cuda.large.cudnn import BIAS, FILTERS, IMAGES, RESULT, Convolution
from pareo.backends.cuda.large.launch import kernel, kind, pitch, pixels, together
from pareo.operators.normalisation import dropout_threshold
from pareo.spec import Spec

INSTRUCTIONS: dict[str, Fusion] = {}
NOT = -1  # the operand that a result may overwrite, where there is none


def _offer(scratch: Any = None, in_place: Any = False, strided: bool = False) -> Any:
    """Enter a function as the kernel of an instruction of its name."""

    def enter(function: Any) -> Any:
        name = function.__name__
        INSTRUCTIONS[name] = Fusion(name, "", (), (), Kernel(function, in_place, strided, scratch))
        return function

    return enter


# Convolution


def convolution(way: str, images: Any, filters: Any, result: Any, **how: Any) -> Convolution:
    """The convolution of three channels-last arrays, or specs of them."""
    return Convolution(
        way,
        _channels_first(images.shape),
        _channels_first(filters.shape),
        _channels_first(result.shape),
        how["stride"],
        how["padding"],
        how["dilation"],
        how["precision"],
        how.get("ending", ""),
    )


def _channels_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    count, height, width, channels = shape
    return (count, channels, height, width)


def _workspace(one: Convolution) -> list[Spec]:
    plan = plans.best(one)
    assert plan is not None, "only convolutions that have a plan are lowered"
    return [Spec((max(plan.workspace, 1),), "uint8")]


def _run(one: Convolution, arrays: dict[int, Any], workspace: Any) -> None:
    plan = plans.best(one)
    assert plan is not None
    plan.run(arrays, workspace)


def _forward_room(out: Spec, x: Spec, w: Spec, *_: Spec, **how: Any) -> list[Spec]:
    return _workspace(convolution("result", x, w, out, **how))


@_offer(_forward_room)
def conv_forward(out: Any, x: Any, w: Any, *b: Any, scratch: Any, **how: Any) -> None:
    one = convolution("result", x, w, out, **how)
    arrays = {IMAGES: x, FILTERS: w, RESULT: out, **({BIAS: b[0]} if b else {})}
    _run(one, arrays, scratch[0])


def _images_room(out: Spec, g: Spec, w: Spec, **how: Any) -> list[Spec]:
    return _workspace(convolution("images", out, w, g, **how))


@_offer(_images_room)
def conv_images(out: Any, g: Any, w: Any, scratch: Any, **how: Any) -> None:
    _run(convolution("images", out, w, g, **how), {IMAGES: out, FILTERS: w, RESULT: g}, scratch[0])


def _filters_room(out: Spec, x: Spec, g: Spec, **how: Any) -> list[Spec]:
    return _workspace(convolution("filters", x, out, g, **how))


@_offer(_filters_room)
def conv_filters(out: Any, x: Any, g: Any, scratch: Any, **how: Any) -> None:
    _run(convolution("filters", x, out, g, **how), {IMAGES: x, FILTERS: out, RESULT: g}, scratch[0])


# Layout and precision


def _turn(out: Any, x: Any, batch: int, rows: int, columns: int) -> None:
    grid = (-(-columns // 32), -(-rows // 32), batch)
    function = kernel("layout", f"turned<{kind(x)}, {kind(out)}>")
    function(grid, (32, 8), (out, x, np.int32(rows), np.int32(columns)))


@_offer()
def channels_last(out: Any, x: Any) -> None:
    batch, height, width, channels = out.shape
    _turn(out, x, batch, channels, height * width)


@_offer()
def channels_first(out: Any, x: Any) -> None:
    batch, height, width, channels = x.shape
    _turn(out, x, batch, height * width, channels)


@_offer()
def cast(out: Any, x: Any) -> None:
    many = 4 if x.size % 4 == 0 else 1
    function = kernel("layout", f"cast<{kind(x)}, {kind(out)}, {many}>")
    function(*launch.flat(x.size, many), (out, x, np.int64(x.size)))


@_offer()
def image_blocks(out: Any, x: Any, block: int, padding: Any) -> None:
    many = launch.WIDEST // out.dtype.itemsize
    sizes = (*x.shape, *out.shape[1:], block, *padding[:2])
    side = block if block in launch.BLOCK_SIDES else 0
    function = kernel("layout", f"blocks<{kind(out)}, {many}, {side}>")
    function(*launch.flat(out.size, many), (out, x, *map(np.int32, sizes)))


@_offer()
def filter_blocks(out: Any, w: Any, block: int) -> None:
    sizes = (*w.shape, *out.shape[1:], block)
    function = kernel("layout", f"block_filters<{kind(out)}>")
    function(*launch.flat(out.size), (out, w, *map(np.int32, sizes)))


@_offer()
def filters_of_blocks(out: Any, blocks: Any, block: int) -> None:
    sizes = (*out.shape, *blocks.shape[1:], block)
    function = kernel("layout", f"unblock_filters<{kind(blocks)}>")
    function(*launch.flat(out.size), (out, blocks, *map(np.int32, sizes)))


@_offer()
def joined(out: Any, *parts: Any) -> None:
    channels = [part.shape[-1] for part in parts]
    widths = [together(width, part, out) for width, part in zip(channels, parts, strict=True)]
    many = min(widths)
    function = kernel("layout", f"concat<{kind(out)}, {many}>")
    start = 0
    for first in range(0, len(parts), 4):
        some = list(parts[first : first + 4])
        ends = [int(end) for end in np.cumsum(channels[first : first + 4])]
        pointers = [part.data.ptr for part in some] + [0] * (4 - len(some))
        ends += [ends[-1]] * (4 - len(ends))
        function(
            *launch.flat(pixels(out) * ends[-1], many),
            (out[..., start:], *map(np.uint64, pointers), *map(np.int32, ends),
             np.uint32(pixels(out)), np.int32(out.shape[-1])),
        )  # fmt: skip
        start += ends[-1]


@_offer(in_place=True)
def total(out: Any, *parts: Any) -> None:
    many = together(out.size, out)
    function = kernel("layout", f"total<{kind(out)}, {many}>")
    pointers = [part.data.ptr for part in parts] + [0] * (4 - len(parts))
    function(*launch.flat(out.size, many), (out, *map(np.uint64, pointers), np.int64(out.size)))


@_offer(strided=True)
def gathered(out: Any, x: Any) -> None:
    function = kernel("layout", f"gathered<{kind(out)}>")
    sizes = np.int64(pixels(out)), np.int32(out.shape[-1]), np.int32(pitch(x))
    function(*launch.flat(out.size), (out, x, *sizes))


# Bias, activation, dropout


def _sum_up(total: Any, partial: Any, rows: int) -> None:
    channels = total.size
    kernel("bias", "add_partial")(
        (-(-channels // 32),), (32, 32), (total, partial, np.int32(rows), np.int32(channels))
    )


def _sums_room(out: Any, g: Spec, *_: Any, **__: Any) -> list[Spec]:
    """Room for the sums that each block leaves."""
    first = out[0] if isinstance(out, tuple) else g
    return [Spec((launch.BLOCKS, first.shape[-1]))]


@_offer(_sums_room, in_place=(0, NOT), strided=True)
def relu_bias_back(out: Any, g: Any, y: Any, scratch: Any) -> None:
    d, sums = out
    channels = y.shape[-1]
    many = together(channels, d, g, y)
    grid, block = launch.walk(pixels(y), channels, many)
    sizes = np.int64(pixels(y)), np.int32(channels), np.int32(pitch(g))
    function = kernel("bias", f"relu_bias_back<{kind(y)}, {many}>")
    function(grid, block, (d, scratch[0], g, y, *sizes), shared_mem=_room(block, many))
    _sum_up(sums, scratch[0], grid[0])


@_offer(strided=True)
def relu_back(out: Any, g: Any, y: Any) -> None:
    channels = y.shape[-1]
    many = together(channels, out, g, y)
    grid, block = launch.walk(pixels(y), channels, many)
    sizes = np.int64(pixels(y)), np.int32(channels), np.int32(pitch(g))
    function = kernel("bias", f"relu_bias_back<{kind(y)}, {many}>")
    function(grid, block, (out, np.uint64(0), g, y, *sizes), shared_mem=_room(block, many))


@_offer(_sums_room, strided=True)
def bias_back(out: Any, g: Any, scratch: Any) -> None:
    channels = g.shape[-1]
    many = together(channels, g)
    grid, block = launch.walk(pixels(g), channels, many)
    sizes = np.int64(pixels(g)), np.int32(channels), np.int32(pitch(g))
    function = kernel("bias", f"bias_back<{kind(g)}, {many}>")
    function(grid, block, (scratch[0], g, *sizes), shared_mem=_room(block, many))
    _sum_up(out, scratch[0], grid[0])


def _room(block: tuple[int, int], many: int) -> int:
    """Bytes of shared memory for a block's sums."""
    return block[0] * block[1] * many * 4


@_offer(in_place=(0,))
def bias_forward(out: Any, x: Any, b: Any, relu: bool) -> None:
    function = kernel("bias", f"add_bias<{kind(out)}, {str(relu).lower()}>")
    function(*launch.flat(out.size), (out, x, b, np.int64(out.size), np.int32(b.size)))


@_offer(in_place=(0,))
def dropout_working(out: Any, x: Any, seed: Any, rate: float) -> None:
    numbers = np.int64(x.size), np.uint32(dropout_threshold(rate)), np.float32(1 / (1 - rate))
    kernel("bias", f"dropout<{kind(x)}>")(*launch.flat(x.size), (out, x, seed, *numbers))


# Matrix products


@_offer()
def dot_working(out: Any, a: Any, b: Any, turned: tuple[bool, bool]) -> None:
    """out = a b, each turned first where `turned` says so."""
    blas.multiply(out, a.T if turned[0] else a, b.T if turned[1] else b)


# Pooling and normalisation


def _window(images: Any, result: Any, size: Any, stride: Any, padding: Any) -> tuple[Any, ...]:
    sizes = (*images.shape[1:3], *result.shape[1:3], *size, *stride, *padding[:2])
    return tuple(map(np.int32, sizes))


@_offer()
def max_pool_places(
    out: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool, relu: bool
) -> None:
    y, places = out
    channels = x.shape[-1]
    many = together(channels, x, y)
    grid, block = launch.walk(pixels(y), channels, many)
    sizes = np.uint32(pixels(y)), np.int32(channels), np.int32(pitch(x))
    function = kernel(
        "pool", f"max_pool<{kind(x)}, {many}, {launch.window(size, stride)}, {str(relu).lower()}>"
    )
    function(grid, block, (y, places, x, *sizes, *_window(x, y, size, stride, padding)))


@_offer()
def max_pool_forward(out: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool) -> None:
    channels = x.shape[-1]
    many = together(channels, x, out)
    grid, block = launch.walk(pixels(out), channels, many)
    sizes = np.uint32(pixels(out)), np.int32(channels), np.int32(pitch(x))
    function = kernel("pool", f"max_pool<{kind(x)}, {many}, {launch.window(size, stride)}, false>")
    window = _window(x, out, size, stride, padding)
    function(grid, block, (out, np.uint64(0), x, *sizes, *window))


def _max_pool_back(d: Any, partial: Any, g: Any, places: Any, **how: Any) -> int:
    channels = d.shape[-1]
    many = together(channels, d, g)
    grid, block = launch.walk(pixels(d), channels, many)
    sizes = np.uint32(pixels(d)), np.int32(channels), np.int32(pitch(g))
    window = _window(d, g, how["size"], how["stride"], how["padding"])
    known = launch.window(how["size"], how["stride"])
    function = kernel("pool", f"max_pool_back<{kind(d)}, {many}, {known}>")
    function(grid, block, (d, partial, g, places, *sizes, *window), shared_mem=_room(block, many))
    return grid[0]


@_offer(_sums_room, strided=True)
def max_pool_bias_back(out: Any, g: Any, places: Any, scratch: Any, **how: Any) -> None:
    d, sums = out
    _sum_up(sums, scratch[0], _max_pool_back(d, scratch[0], g, places, **how))


@_offer(strided=True)
def max_pool_back(out: Any, g: Any, places: Any, **how: Any) -> None:
    _max_pool_back(out, np.uint64(0), g, places, **how)


@_offer()
def average_pool_forward(
    out: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool
) -> None:
    channels = x.shape[-1]
    many = together(channels, x, out)
    sizes = np.uint32(pixels(out)), np.int32(channels), np.int32(pitch(x))
    kernel("pool", f"average_pool<{kind(x)}, {many}, {launch.window(size, stride)}>")(
        *launch.walk(pixels(out), channels, many),
        (out, x, *sizes, *_window(x, out, size, stride, padding)),
    )


@_offer()
def average_pool_back(
    out: Any, g: Any, size: Any, stride: Any, padding: Any, ceil: bool, image: Any
) -> None:
    channels = g.shape[-1]
    many = together(channels, g, out)
    sizes = np.uint32(pixels(out)), np.int32(channels), np.int32(pitch(g))
    kernel("pool", f"average_pool_back<{kind(g)}, {many}, {launch.window(size, stride)}>")(
        *launch.walk(pixels(out), channels, many),
        (out, g, *sizes, *_window(out, g, size, stride, padding)),
    )


def _near(size: int, *arrays: Any) -> int:
    """How many channels a thread normalises with its neighbours in registers; 0 for not so."""
    many = together(arrays[0].shape[-1], *arrays)
    return many if size == 5 and many > 1 else 0


def _by_pixels(x: Any, rows: int) -> tuple[Any, Any, int]:
    """Grid, block and shared memory for kernels that hold some rows of channels for each pixel."""
    channels = x.shape[-1]
    wide = min(-(-channels // 32) * 32, 256)
    high = max(1, 256 // wide)
    count = -(-pixels(x) // high)
    return (min(count, 8 * launch.BLOCKS),), (wide, high), rows * high * channels * 4


def _lrn_numbers(size: int, alpha: float, beta: float, k: float) -> tuple[Any, ...]:
    return np.float32(alpha / size), np.float32(beta), np.float32(k)


@_offer()
def lrn_forward(out: Any, x: Any, size: int, **how: float) -> None:
    sizes, numbers = (np.uint32(pixels(x)), np.int32(x.shape[-1])), _lrn_numbers(size, **how)
    many = _near(size, out, x)
    if many:
        grid, block = launch.walk(pixels(x), x.shape[-1], many)
        kernel("lrn", f"lrn_near<{kind(x)}, {many}>")(grid, block, (out, x, *sizes, *numbers))
        return
    grid, block, room = _by_pixels(x, 1)
    arguments = (out, x, *sizes, np.int32(size), *numbers)
    kernel("lrn", f"lrn_any<{kind(x)}>")(grid, block, arguments, shared_mem=room)


@_offer()
def lrn_back(out: Any, g: Any, x: Any, size: int, **how: float) -> None:
    sizes, numbers = (np.uint32(pixels(x)), np.int32(x.shape[-1])), _lrn_numbers(size, **how)
    many = _near(size, out, g, x)
    if many:
        grid, block = launch.walk(pixels(x), x.shape[-1], many)
        arguments = (out, np.uint64(0), g, x, *sizes, *numbers)
        function = kernel("lrn", f"lrn_near_back<{kind(x)}, {many}, false>")
        function(grid, block, arguments, shared_mem=_room(block, many))
        return
    grid, block, room = _by_pixels(x, 3)
    arguments = (out, g, x, *sizes, np.int32(size), *numbers)
    kernel("lrn", f"lrn_any_back<{kind(x)}>")(grid, block, arguments, shared_mem=room)


@_offer(_sums_room)
def lrn_relu_bias_back(out: Any, g: Any, x: Any, scratch: Any, size: int, **how: float) -> None:
    """Only for windows of five channels, and channels that a thread takes several of at once."""
    d, sums = out
    many = _near(size, d, g, x)
    grid, block = launch.walk(pixels(x), x.shape[-1], many)
    sizes, numbers = (np.uint32(pixels(x)), np.int32(x.shape[-1])), _lrn_numbers(size, **how)
    function = kernel("lrn", f"lrn_near_back<{kind(x)}, {many}, true>")
    arguments = (d, scratch[0], g, x, *sizes, *numbers)
    function(grid, block, arguments, shared_mem=_room(block, many))
    _sum_up(sums, scratch[0], grid[0])


def has_plan(one: Convolution) -> bool:
    """Whether cuDNN can be asked for a convolution."""
    return cudnn.missing() is None and plans.best(one) is not None
