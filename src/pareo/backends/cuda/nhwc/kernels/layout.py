"""Copies to another layout or precision, concatenation and sums (layout.cu)."""

from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.nhwc.kernels.launch import c_type, kernel, pitch, pixels, vector_width
from pareo.backends.cuda.nhwc.kernels.table import instruction
from pareo.backends.cuda.runtime.indexed_batch import order_and_step
from pareo.backends.cuda.runtime.launch import NULL

MOST_SHARED = 48 << 10  # bytes of a block


def _transpose(out: Array, x: Array, batch: int, rows: int, columns: int) -> None:
    grid = (-(-columns // 32), -(-rows // 32), batch)
    function = kernel("layout", f"transpose<{c_type(x)}, {c_type(out)}>")
    function(grid, (32, 8), (out, x, np.int32(rows), np.int32(columns)))


@instruction()
def channels_last(out: Array, x: Array) -> None:
    batch, height, width, channels = out.shape
    _transpose(out, x, batch, channels, height * width)


@instruction()
def channels_first(out: Array, x: Array) -> None:
    batch, height, width, channels = x.shape
    _transpose(out, x, batch, height * width, channels)


@instruction()
def cast(out: Array, x: Array) -> None:
    vector = 4 if x.size % 4 == 0 else 1
    function = kernel("layout", f"cast<{c_type(x)}, {c_type(out)}, {vector}>")
    function(*launch.element_grid(x.size, vector), (out, x, np.int64(x.size)))


@instruction()
def space_to_depth(
    out: Array, x: Array, block: int, padding: tuple[int, ...], fold: int = 1
) -> None:
    """Blocks of pixels as pixels; with `fold`, so many neighbouring blocks as one."""
    vector = launch.WIDEST // out.dtype.itemsize
    sizes = (*x.shape, *out.shape[1:], block, *padding[:2], fold)
    start = f"<{c_type(out)}, {vector}, "
    arguments = (out, x, *order_and_step(x), *map(np.int32, sizes))
    shared = 4 * x.shape[1] * block * block * (out.shape[2] + fold - 1)
    if fold > 1 and shared <= MOST_SHARED:
        known = "2, 3>" if (block, x.shape[1]) == (2, 3) else "0, 0>"
        grid, threads = (out.shape[0] * out.shape[1],), (launch.THREADS,)
        function = kernel("layout", f"space_to_depth_rows{start}{known}")
        function(grid, threads, arguments, shared_mem=shared)
    else:
        side = block if block in launch.BLOCK_SIDES else 0
        function = kernel("layout", f"space_to_depth{start}{side}>")
        function(*launch.element_grid(out.size, vector), arguments)


@instruction()
def filters_to_depth(out: Array, w: Array, block: int, fold: int = 1) -> None:
    sizes = (*w.shape, *out.shape[1:], block, fold)
    function = kernel("layout", f"filters_to_depth<{c_type(out)}>")
    function(*launch.element_grid(out.size), (out, w, *map(np.int32, sizes)))


@instruction()
def filters_from_depth(out: Array, blocks: Array, block: int, fold: int = 1) -> None:
    sizes = (*out.shape, *blocks.shape[1:], block, fold)
    function = kernel("layout", f"filters_from_depth<{c_type(blocks)}>")
    function(*launch.element_grid(out.size), (out, blocks, *map(np.int32, sizes)))


def side_by_side(parts: tuple[Array, ...]) -> tuple[Any, ...]:
    """Up to four arrays as the parameters SIDE_BY_SIDE of side_by_side.cuh."""
    rest = 4 - len(parts)
    pointers = [np.uint64(part.data.ptr) for part in parts] + [NULL] * rest
    pitches = [np.int32(pitch(part)) for part in parts] + [np.int32(0)] * rest
    ends = list(np.cumsum([part.shape[-1] for part in parts]))
    ends += [ends[-1]] * rest
    return (*pointers, *pitches, *map(np.int32, ends[:3]))


def common_vector_width(*parts: Array) -> int:
    """The elements that a thread may load at once from each of the arrays."""
    return min(vector_width(part.shape[-1], part) for part in parts)


@instruction(strided=True)
def concat_channels(out: Array, *parts: Array) -> None:
    start = 0
    for first in range(0, len(parts), 4):
        some = parts[first : first + 4]
        channels = sum(part.shape[-1] for part in some)
        target = out[..., start : start + channels]
        vector = min(common_vector_width(*some), vector_width(channels, target))
        sizes = np.uint32(pixels(out)), np.int32(channels), np.int32(pitch(out))
        function = kernel("layout", f"concat<{c_type(out)}, {vector}>")
        grid, block = launch.element_grid(pixels(out) * channels, vector)
        function(grid, block, (target, *sizes, *side_by_side(some)))
        start += channels


@instruction(in_place=True)
def add_images(out: Array, *parts: Array) -> None:
    vector = vector_width(out.size, out)
    function = kernel("layout", f"total<{c_type(out)}, {vector}>")
    pointers = [part.data.ptr for part in parts] + [0] * (4 - len(parts))
    function(
        *launch.element_grid(out.size, vector), (out, *map(np.uint64, pointers), np.int64(out.size))
    )


@instruction()
def broadcast_pixels(out: Array, x: Array) -> None:
    """x (N, 1, 1, C) for all pixels of out (N, H, W, C)."""
    channels = out.shape[-1]
    vector = vector_width(channels, out, x)
    function = kernel("layout", f"repeat<{c_type(out)}, {vector}>")
    sizes = np.uint32(out.size // vector), np.int32(out[0].size // vector)
    grid, block = launch.element_grid(out.size, vector)
    function(grid, block, (out, x, *sizes, np.int32(channels // vector)))
