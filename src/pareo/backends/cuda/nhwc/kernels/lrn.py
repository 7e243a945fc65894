"""Local response normalisation (lrn.cu)."""

from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.nhwc.kernels.bias import shared_bytes
from pareo.backends.cuda.nhwc.kernels.launch import c_type, kernel, pixels, vector_width
from pareo.backends.cuda.nhwc.kernels.table import instruction
from pareo.backends.cuda.runtime.launch import NULL


def _near(size: int, *arrays: Array) -> int:
    """Channels of a thread that keeps its neighbours in registers; 0 where that is not possible."""
    vector = vector_width(arrays[0].shape[-1], *arrays)
    return vector if size == 5 and vector > 1 else 0


def _by_pixels(x: Array, rows: int) -> tuple[Any, Any, int]:
    """Grid, block and shared memory of kernels that hold `rows` rows of channels for each pixel."""
    channels = x.shape[-1]
    wide = min(-(-channels // 32) * 32, 256)
    high = max(1, 256 // wide)
    count = -(-pixels(x) // high)
    return (min(count, 8 * launch.BLOCKS),), (wide, high), rows * high * channels * 4


def _lrn_numbers(size: int, alpha: float, beta: float, k: float) -> tuple[np.float32, ...]:
    return np.float32(alpha / size), np.float32(beta), np.float32(k)


@instruction()
def lrn_forward(out: Array, x: Array, size: int, **how: float) -> None:
    sizes, numbers = (np.uint32(pixels(x)), np.int32(x.shape[-1])), _lrn_numbers(size, **how)
    vector = _near(size, out, x)
    if vector:
        grid, block = launch.pixel_grid(pixels(x), x.shape[-1], vector)
        kernel("lrn", f"lrn_near<{c_type(x)}, {vector}>")(grid, block, (out, x, *sizes, *numbers))
        return
    grid, block, shared = _by_pixels(x, 1)
    arguments = (out, x, *sizes, np.int32(size), *numbers)
    kernel("lrn", f"lrn_any<{c_type(x)}>")(grid, block, arguments, shared_mem=shared)


@instruction()
def lrn_back(out: Array, g: Array, x: Array, size: int, **how: float) -> None:
    sizes, numbers = (np.uint32(pixels(x)), np.int32(x.shape[-1])), _lrn_numbers(size, **how)
    vector = _near(size, out, g, x)
    if vector:
        grid, block = launch.pixel_grid(pixels(x), x.shape[-1], vector)
        arguments = (out, NULL, g, x, *sizes, *numbers)
        function = kernel("lrn", f"lrn_near_back<{c_type(x)}, {vector}, false>")
        function(grid, block, arguments, shared_mem=shared_bytes(block, vector))
        return
    grid, block, shared = _by_pixels(x, 3)
    arguments = (out, g, x, *sizes, np.int32(size), *numbers)
    kernel("lrn", f"lrn_any_back<{c_type(x)}>")(grid, block, arguments, shared_mem=shared)


@instruction()
def lrn_relu_bias_back(out: Array, g: Array, x: Array, size: int, **how: float) -> None:
    """Only for windows of five channels, and channels that allow vector loads."""
    d, partial = out
    vector = _near(size, d, g, x)
    grid, block = launch.pixel_grid(pixels(x), x.shape[-1], vector)
    sizes, numbers = (np.uint32(pixels(x)), np.int32(x.shape[-1])), _lrn_numbers(size, **how)
    function = kernel("lrn", f"lrn_near_back<{c_type(x)}, {vector}, true>")
    arguments = (d, partial, g, x, *sizes, *numbers)
    function(grid, block, arguments, shared_mem=shared_bytes(block, vector))
