"""Values in another layout or precision, side by side, and added up (layout.cu)."""

from typing import Any

import numpy as np

from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.nhwc.kernels.launch import kernel, kind, pitch, pixels, together
from pareo.backends.cuda.nhwc.kernels.table import NOTHING, offer
from pareo.backends.cuda.runtime.indexed_batch import picks


def _turn(out: Any, x: Any, batch: int, rows: int, columns: int) -> None:
    grid = (-(-columns // 32), -(-rows // 32), batch)
    function = kernel("layout", f"turned<{kind(x)}, {kind(out)}>")
    function(grid, (32, 8), (out, x, np.int32(rows), np.int32(columns)))


@offer()
def channels_last(out: Any, x: Any) -> None:
    batch, height, width, channels = out.shape
    _turn(out, x, batch, channels, height * width)


@offer()
def channels_first(out: Any, x: Any) -> None:
    batch, height, width, channels = x.shape
    _turn(out, x, batch, height * width, channels)


@offer()
def cast(out: Any, x: Any) -> None:
    many = 4 if x.size % 4 == 0 else 1
    function = kernel("layout", f"cast<{kind(x)}, {kind(out)}, {many}>")
    function(*launch.flat(x.size, many), (out, x, np.int64(x.size)))


@offer()
def image_blocks(out: Any, x: Any, block: int, padding: Any) -> None:
    many = launch.WIDEST // out.dtype.itemsize
    sizes = (*x.shape, *out.shape[1:], block, *padding[:2])
    side = block if block in launch.BLOCK_SIDES else 0
    function = kernel("layout", f"blocks<{kind(out)}, {many}, {side}>")
    function(*launch.flat(out.size, many), (out, x, *picks(x), *map(np.int32, sizes)))


@offer()
def filter_blocks(out: Any, w: Any, block: int) -> None:
    sizes = (*w.shape, *out.shape[1:], block)
    function = kernel("layout", f"block_filters<{kind(out)}>")
    function(*launch.flat(out.size), (out, w, *map(np.int32, sizes)))


@offer()
def filters_of_blocks(out: Any, blocks: Any, block: int) -> None:
    sizes = (*out.shape, *blocks.shape[1:], block)
    function = kernel("layout", f"unblock_filters<{kind(blocks)}>")
    function(*launch.flat(out.size), (out, blocks, *map(np.int32, sizes)))


def beside(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Up to four arrays side by side, as BESIDE in beside.cuh takes them."""
    rest = 4 - len(parts)
    pointers = [np.uint64(part.data.ptr) for part in parts] + [NOTHING] * rest
    pitches = [np.int32(pitch(part)) for part in parts] + [np.int32(0)] * rest
    ends = list(np.cumsum([part.shape[-1] for part in parts]))
    ends += [ends[-1]] * rest
    return (*pointers, *pitches, *map(np.int32, ends[:3]))


def least(*parts: Any) -> int:
    """How many elements a thread may take at once of all arrays side by side."""
    return min(together(part.shape[-1], part) for part in parts)


@offer(strided=True)
def joined(out: Any, *parts: Any) -> None:
    start = 0
    for first in range(0, len(parts), 4):
        some = parts[first : first + 4]
        channels = sum(part.shape[-1] for part in some)
        target = out[..., start : start + channels]
        many = min(least(*some), together(channels, target))
        sizes = np.uint32(pixels(out)), np.int32(channels), np.int32(pitch(out))
        function = kernel("layout", f"concat<{kind(out)}, {many}>")
        grid, block = launch.flat(pixels(out) * channels, many)
        function(grid, block, (target, *sizes, *beside(some)))
        start += channels


@offer(in_place=True)
def total(out: Any, *parts: Any) -> None:
    many = together(out.size, out)
    function = kernel("layout", f"total<{kind(out)}, {many}>")
    pointers = [part.data.ptr for part in parts] + [0] * (4 - len(parts))
    function(*launch.flat(out.size, many), (out, *map(np.uint64, pointers), np.int64(out.size)))
