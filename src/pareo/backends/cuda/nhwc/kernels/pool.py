"""Pooling (pool.cu, and pool3.cu for windows of 3 x 3)."""

from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.nhwc.kernels.bias import shared_bytes
from pareo.backends.cuda.nhwc.kernels.launch import c_type, kernel, pitch, pixels, vector_width
from pareo.backends.cuda.nhwc.kernels.table import instruction
from pareo.backends.cuda.runtime.launch import NULL

ENOUGH = 1 << 17  # threads that keep a GPU busy
LEAST_ROWS = 4  # of a thread's part of a column


def _window(
    images: Array,
    result: Array,
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, ...],
) -> tuple[np.int32, ...]:
    sizes = (*images.shape[1:3], *result.shape[1:3], *size, *stride, *padding[:2])
    return tuple(map(np.int32, sizes))


def _of_three(size: tuple[int, int], stride: tuple[int, int]) -> int:
    """The stride of windows of 3 x 3 that have their own kernels; 0 for other windows."""
    return stride[0] if size == (3, 3) and stride in ((1, 1), (2, 2)) else 0


def _parts(threads: int, rows: int) -> int:
    """The number of threads that share a column: more where there are few columns.

    >>> _parts(threads=1 << 20, rows=56), _parts(threads=1344, rows=28)
    (1, 7)
    """
    return max(1, min(ENOUGH // max(threads, 1), rows // LEAST_ROWS))


def _max_pool(
    y: Array,
    indices: Array,
    x: Array,
    relu: bool,
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, ...],
) -> None:
    channels, apart, yes_no = x.shape[-1], _of_three(size, stride), str(relu).lower()
    vector = vector_width(channels, x, y)
    numbers = np.int32(channels), np.int32(pitch(x))
    if apart == 1:
        vector = min(vector, 4)
        parts = _parts(len(y) * y.shape[2] * channels // vector, y.shape[1])
        count = parts * len(y) * y.shape[2]
        sizes = map(np.int32, (*x.shape[1:3], *y.shape[1:3], *padding[:2]))
        function = kernel("pool3", f"max_pool3<{c_type(x)}, {vector}, {yes_no}>")
        arguments = (y, indices, x, np.uint32(count), np.int32(parts), *numbers, *sizes)
    else:
        count = pixels(y)
        window = _window(x, y, size, stride, padding)
        side = 3 if apart else 0
        function = kernel("pool", f"max_pool<{c_type(x)}, {vector}, {side}, {yes_no}>")
        arguments = (y, indices, x, np.uint32(count), *numbers, *window)
    function(*launch.pixel_grid(count, channels, vector), arguments)


@instruction()
def max_pool_with_indices(
    out: Array,
    x: Array,
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, ...],
    ceil: bool,
    relu: bool,
) -> None:
    _max_pool(out[0], out[1], x, relu, size, stride, padding)


@instruction()
def max_pool_forward(
    out: Array,
    x: Array,
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, ...],
    ceil: bool,
) -> None:
    _max_pool(out, NULL, x, False, size, stride, padding)


def _max_pool_back(
    d: Array,
    partial: Array,
    g: Array,
    indices: Array,
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, ...],
    ceil: bool,
) -> None:
    channels, apart = d.shape[-1], _of_three(size, stride)
    vector = vector_width(channels, d, g)
    numbers = np.int32(channels), np.int32(pitch(g))
    if apart:
        parts = _parts(len(d) * d.shape[2] * channels // vector, d.shape[1] // apart)
        count = parts * len(d) * d.shape[2]
        sizes = map(np.int32, (*d.shape[1:3], *g.shape[1:3], *padding[:2]))
        function = kernel("pool3", f"max_pool3_back<{c_type(d)}, {vector}, {apart}>")
        arguments = (d, partial, g, indices, np.uint32(count), np.int32(parts), *numbers, *sizes)
    else:
        count = pixels(d)
        window = _window(d, g, size, stride, padding)
        function = kernel("pool", f"max_pool_back<{c_type(d)}, {vector}>")
        arguments = (d, partial, g, indices, np.uint32(count), *numbers, *window)
    grid, block = launch.pixel_grid(count, channels, vector)
    function(grid, block, arguments, shared_mem=shared_bytes(block, vector))


@instruction(strided=True)
def max_pool_bias_back(out: Array, g: Array, indices: Array, **how: Any) -> None:
    d, partial = out
    _max_pool_back(d, partial, g, indices, **how)


@instruction(strided=True)
def max_pool_back(out: Array, g: Array, indices: Array, **how: Any) -> None:
    _max_pool_back(out, NULL, g, indices, **how)


@instruction()
def average_pool_forward(
    out: Array,
    x: Array,
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, ...],
    ceil: bool,
) -> None:
    channels = x.shape[-1]
    vector = vector_width(channels, x, out)
    sizes = np.uint32(pixels(out)), np.int32(channels), np.int32(pitch(x))
    kernel("pool", f"average_pool<{c_type(x)}, {vector}>")(
        *launch.pixel_grid(pixels(out), channels, vector),
        (out, x, *sizes, *_window(x, out, size, stride, padding)),
    )


@instruction()
def average_pool_back(
    out: Array,
    g: Array,
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, ...],
    ceil: bool,
    image: tuple[int, int],
) -> None:
    channels = g.shape[-1]
    vector = vector_width(channels, g, out)
    sizes = np.uint32(pixels(out)), np.int32(channels), np.int32(pitch(g))
    kernel("pool", f"average_pool_back<{c_type(g)}, {vector}>")(
        *launch.pixel_grid(pixels(out), channels, vector),
        (out, g, *sizes, *_window(out, g, size, stride, padding)),
    )
