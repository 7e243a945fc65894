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
from pareo.backends.cuda.launch import struct
from pareo.operators.normalisation import dropout_threshold
from pareo.spec import Spec

INSTRUCTIONS: dict[str, Fusion] = {}
MOST_UPDATES, UPDATED_TOGETHER = 40, 1024  # as in update.cu
NOTHING = np.uint64(0)  # for a kernel, no array
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


def _beside(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Up to four arrays side by side, as BESIDE in beside.cuh takes them."""
    rest = 4 - len(parts)
    pointers = [np.uint64(part.data.ptr) for part in parts] + [NOTHING] * rest
    pitches = [np.int32(pitch(part)) for part in parts] + [np.int32(0)] * rest
    ends = list(np.cumsum([part.shape[-1] for part in parts]))
    ends += [ends[-1]] * rest
    return (*pointers, *pitches, *map(np.int32, ends[:3]))


def _least(*parts: Any) -> int:
    """How many elements a thread may take at once of all arrays side by side."""
    return min(together(part.shape[-1], part) for part in parts)


@_offer(strided=True)
def joined(out: Any, *parts: Any) -> None:
    start = 0
    for first in range(0, len(parts), 4):
        some = parts[first : first + 4]
        channels = sum(part.shape[-1] for part in some)
        target = out[..., start : start + channels]
        many = min(_least(*some), together(channels, target))
        sizes = np.uint32(pixels(out)), np.int32(channels), np.int32(pitch(out))
        function = kernel("layout", f"concat<{kind(out)}, {many}>")
        grid, block = launch.flat(pixels(out) * channels, many)
        function(grid, block, (target, *sizes, *_beside(some)))
        start += channels


@_offer(in_place=True)
def total(out: Any, *parts: Any) -> None:
    many = together(out.size, out)
    function = kernel("layout", f"total<{kind(out)}, {many}>")
    pointers = [part.data.ptr for part in parts] + [0] * (4 - len(parts))
    function(*launch.flat(out.size, many), (out, *map(np.uint64, pointers), np.int64(out.size)))


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


def _relu_back(d: Any, partial: Any, y: Any, gradients: tuple[Any, ...]) -> int:
    """Rows of partial sums that it left."""
    channels = y.shape[-1]
    many = min(together(channels, d, y), _least(*gradients))
    grid, block = launch.walk(pixels(y), channels, many)
    sizes = np.uint32(pixels(y)), np.int32(channels)
    function = kernel("bias", f"relu_bias_back<{kind(y)}, {many}>")
    arguments = (d, partial, y, *sizes, *_beside(gradients))
    function(grid, block, arguments, shared_mem=_room(block, many))
    return grid[0]


@_offer(_sums_room, in_place=(1, NOT), strided=True)
def relu_bias_back(out: Any, y: Any, *gradients: Any, scratch: Any) -> None:
    d, sums = out
    _sum_up(sums, scratch[0], _relu_back(d, scratch[0], y, gradients))


@_offer(strided=True)
def relu_back(out: Any, g: Any, y: Any) -> None:
    _relu_back(out, NOTHING, y, (g,))


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


# Updates


def update_all(count: int) -> Fusion:
    """The instruction that updates `count` parameters, each over itself.

    Its operands are rate, momentum and decay, then for every parameter the parameter, its gradient
    and its velocity; its results for each the new parameter and the new velocity.
    """
    over = tuple(place for i in range(count) for place in (3 + 3 * i, 5 + 3 * i))
    return Fusion("update_all", "", (), (), Kernel(_update_all, over, strided=False))


def _update_all(
    out: Any, rate: Any, momentum: Any, decay: Any, *arrays: Any, taps: tuple[int, ...]
) -> None:
    for first in range(0, len(taps), MOST_UPDATES):
        table: list[Any] = []
        blocks = 0
        for i in range(first, min(first + MOST_UPDATES, len(taps))):
            parameter, gradient, velocity = arrays[3 * i : 3 * i + 3]
            pointers = (*out[2 * i : 2 * i + 2], parameter, velocity, gradient)
            channels = parameter.shape[1] if taps[i] > 1 else 1
            narrow = gradient.dtype.itemsize == 2
            table += [array.data.ptr for array in pointers]
            table += [parameter.size, channels, taps[i], narrow, blocks]
            blocks += -(-parameter.size // UPDATED_TOGETHER)
        number = len(table) // 10
        table += [0] * (10 * MOST_UPDATES - len(table))
        kernel("update", "update_all")(
            (blocks,), (launch.THREADS,), (struct(*table), np.int32(number), rate, momentum, decay)
        )


@_offer(in_place=(2, 3))
def update_dense(
    out: Any, x: Any, g: Any, parameter: Any, velocity: Any, rate: Any, momentum: Any, decay: Any
) -> None:
    rows, columns = parameter.shape
    grid = (-(-columns // 64), -(-rows // 64))
    sizes = map(np.int32, (len(x), rows, columns))
    kernel("update", f"update_dense<{kind(x)}>")(
        grid, (128,), (*out, x, g, parameter, velocity, rate, momentum, decay, *sizes)
    )


# Pooling and normalisation


def _window(images: Any, result: Any, size: Any, stride: Any, padding: Any) -> tuple[Any, ...]:
    sizes = (*images.shape[1:3], *result.shape[1:3], *size, *stride, *padding[:2])
    return tuple(map(np.int32, sizes))


def _of_three(size: Any, stride: Any) -> int:
    """The stride of windows of three by three that have kernels of their own; 0 for others."""
    return stride[0] if size == (3, 3) and stride in ((1, 1), (2, 2)) else 0


def _max_pool(
    y: Any, places: Any, x: Any, relu: bool, size: Any, stride: Any, padding: Any
) -> None:
    channels, apart, yes_no = x.shape[-1], _of_three(size, stride), str(relu).lower()
    many = together(channels, x, y)
    numbers = np.int32(channels), np.int32(pitch(x))
    if apart == 1:
        many = min(many, 4)
        count = len(y) * y.shape[2]
        sizes = map(np.int32, (*x.shape[1:3], *y.shape[1:3], *padding[:2]))
        function = kernel("pool3", f"max_pool3<{kind(x)}, {many}, {yes_no}>")
        arguments = (y, places, x, np.uint32(count), *numbers, *sizes)
    else:
        count = pixels(y)
        window = _window(x, y, size, stride, padding)
        side = 3 if apart else 0
        function = kernel("pool", f"max_pool<{kind(x)}, {many}, {side}, {yes_no}>")
        arguments = (y, places, x, np.uint32(count), *numbers, *window)
    function(*launch.walk(count, channels, many), arguments)


@_offer()
def max_pool_places(
    out: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool, relu: bool
) -> None:
    _max_pool(out[0], out[1], x, relu, size, stride, padding)


@_offer()
def max_pool_forward(out: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool) -> None:
    _max_pool(out, NOTHING, x, False, size, stride, padding)


def _max_pool_back(
    d: Any, partial: Any, g: Any, places: Any, size: Any, stride: Any, padding: Any, ceil: bool
) -> int:
    """Rows of partial sums that it left."""
    channels, apart = d.shape[-1], _of_three(size, stride)
    many = together(channels, d, g)
    numbers = np.int32(channels), np.int32(pitch(g))
    if apart:
        count = len(d) * d.shape[2]
        sizes = map(np.int32, (*d.shape[1:3], *g.shape[1:3], *padding[:2]))
        function = kernel("pool3", f"max_pool3_back<{kind(d)}, {many}, {apart}>")
        arguments = (d, partial, g, places, np.uint32(count), *numbers, *sizes)
    else:
        count = pixels(d)
        window = _window(d, g, size, stride, padding)
        function = kernel("pool", f"max_pool_back<{kind(d)}, {many}>")
        arguments = (d, partial, g, places, np.uint32(count), *numbers, *window)
    grid, block = launch.walk(count, channels, many)
    function(grid, block, arguments, shared_mem=_room(block, many))
    return grid[0]


@_offer(_sums_room, strided=True)
def max_pool_bias_back(out: Any, g: Any, places: Any, scratch: Any, **how: Any) -> None:
    d, sums = out
    _sum_up(sums, scratch[0], _max_pool_back(d, scratch[0], g, places, **how))


@_offer(strided=True)
def max_pool_back(out: Any, g: Any, places: Any, **how: Any) -> None:
    _max_pool_back(out, NOTHING, g, places, **how)


@_offer()
def average_pool_forward(
    out: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool
) -> None:
    channels = x.shape[-1]
    many = together(channels, x, out)
    sizes = np.uint32(pixels(out)), np.int32(channels), np.int32(pitch(x))
    kernel("pool", f"average_pool<{kind(x)}, {many}>")(
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
    kernel("pool", f"average_pool_back<{kind(g)}, {many}>")(
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
        arguments = (out, NOTHING, g, x, *sizes, *numbers)
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
