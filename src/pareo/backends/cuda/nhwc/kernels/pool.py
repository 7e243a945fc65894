"""Pooling (pool.cu, and pool3.cu for windows of three by three)."""

from typing import Any

import numpy as np

from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.nhwc.kernels.bias import room
from pareo.backends.cuda.nhwc.kernels.launch import kernel, kind, pitch, pixels, together
from pareo.backends.cuda.nhwc.kernels.table import NOTHING, offer

ENOUGH = 1 << 17  # threads that keep a card busy
LEAST_ROWS = 4  # of a share of a column


def _window(images: Any, result: Any, size: Any, stride: Any, padding: Any) -> tuple[Any, ...]:
    sizes = (*images.shape[1:3], *result.shape[1:3], *size, *stride, *padding[:2])
    return tuple(map(np.int32, sizes))


def _of_three(size: Any, stride: Any) -> int:
    """The stride of windows of three by three that have kernels of their own; 0 for others."""
    return stride[0] if size == (3, 3) and stride in ((1, 1), (2, 2)) else 0


def _parts(threads: int, rows: int) -> int:
    """How many threads share a column: more where there are few, but each has some rows.

    >>> _parts(threads=1 << 20, rows=56), _parts(threads=1344, rows=28)
    (1, 7)
    """
    return max(1, min(ENOUGH // max(threads, 1), rows // LEAST_ROWS))


def _max_pool(
    y: Any, places: Any, x: Any, relu: bool, size: Any, stride: Any, padding: Any
) -> None:
    channels, apart, yes_no = x.shape[-1], _of_three(size, stride), str(relu).lower()
    many = together(channels, x, y)
    numbers = np.int32(channels), np.int32(pitch(x))
    if apart == 1:
        many = min(many, 4)
        parts = _parts(len(y) * y.shape[2] * channels // many, y.shape[1])
        count = parts * len(y) * y.shape[2]
        sizes = map(np.int32, (*x.shape[1:3], *y.shape[1:3], *padding[:2]))
        function = kernel("pool3", f"max_pool3<{kind(x)}, {many}, {yes_no}>")
        arguments = (y, places, x, np.uint32(count), np.int32(parts), *numbers, *sizes)
    else:
        count = pixels(y)
        window = _window(x, y, size, stride, padding)
        side = 3 if apart else 0
        function = kernel("pool", f"max_pool<{kind(x)}, {many}, {side}, {yes_no}>")
        arguments = (y, places, x, np.uint32(count), *numbers, *window)
    function(*launch.walk(count, channels, many), arguments)


@offer()
def max_pool_places(
    out: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool, relu: bool
) -> None:
    _max_pool(out[0], out[1], x, relu, size, stride, padding)


@offer()
def max_pool_forward(out: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool) -> None:
    _max_pool(out, NOTHING, x, False, size, stride, padding)


def _max_pool_back(
    d: Any, partial: Any, g: Any, places: Any, size: Any, stride: Any, padding: Any, ceil: bool
) -> None:
    channels, apart = d.shape[-1], _of_three(size, stride)
    many = together(channels, d, g)
    numbers = np.int32(channels), np.int32(pitch(g))
    if apart:
        parts = _parts(len(d) * d.shape[2] * channels // many, d.shape[1] // apart)
        count = parts * len(d) * d.shape[2]
        sizes = map(np.int32, (*d.shape[1:3], *g.shape[1:3], *padding[:2]))
        function = kernel("pool3", f"max_pool3_back<{kind(d)}, {many}, {apart}>")
        arguments = (d, partial, g, places, np.uint32(count), np.int32(parts), *numbers, *sizes)
    else:
        count = pixels(d)
        window = _window(d, g, size, stride, padding)
        function = kernel("pool", f"max_pool_back<{kind(d)}, {many}>")
        arguments = (d, partial, g, places, np.uint32(count), *numbers, *window)
    grid, block = launch.walk(count, channels, many)
    function(grid, block, arguments, shared_mem=room(block, many))


@offer(strided=True)
def max_pool_bias_back(out: Any, g: Any, places: Any, **how: Any) -> None:
    d, partial = out
    _max_pool_back(d, partial, g, places, **how)


@offer(strided=True)
def max_pool_back(out: Any, g: Any, places: Any, **how: Any) -> None:
    _max_pool_back(out, NOTHING, g, places, **how)


@offer()
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


@offer()
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
