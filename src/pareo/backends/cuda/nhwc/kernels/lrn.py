"""Local response normalisation (lrn.cu)."""

from typing import Any

import numpy as np

from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.nhwc.kernels.bias import room
from pareo.backends.cuda.nhwc.kernels.launch import kernel, kind, pixels, together
from pareo.backends.cuda.nhwc.kernels.table import NOTHING, offer


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


@offer()
def lrn_forward(out: Any, x: Any, size: int, **how: float) -> None:
    sizes, numbers = (np.uint32(pixels(x)), np.int32(x.shape[-1])), _lrn_numbers(size, **how)
    many = _near(size, out, x)
    if many:
        grid, block = launch.walk(pixels(x), x.shape[-1], many)
        kernel("lrn", f"lrn_near<{kind(x)}, {many}>")(grid, block, (out, x, *sizes, *numbers))
        return
    grid, block, shared = _by_pixels(x, 1)
    arguments = (out, x, *sizes, np.int32(size), *numbers)
    kernel("lrn", f"lrn_any<{kind(x)}>")(grid, block, arguments, shared_mem=shared)


@offer()
def lrn_back(out: Any, g: Any, x: Any, size: int, **how: float) -> None:
    sizes, numbers = (np.uint32(pixels(x)), np.int32(x.shape[-1])), _lrn_numbers(size, **how)
    many = _near(size, out, g, x)
    if many:
        grid, block = launch.walk(pixels(x), x.shape[-1], many)
        arguments = (out, NOTHING, g, x, *sizes, *numbers)
        function = kernel("lrn", f"lrn_near_back<{kind(x)}, {many}, false>")
        function(grid, block, arguments, shared_mem=room(block, many))
        return
    grid, block, shared = _by_pixels(x, 3)
    arguments = (out, g, x, *sizes, np.int32(size), *numbers)
    kernel("lrn", f"lrn_any_back<{kind(x)}>")(grid, block, arguments, shared_mem=shared)


@offer()
def lrn_relu_bias_back(out: Any, g: Any, x: Any, size: int, **how: float) -> None:
    """Only for windows of five channels, and channels that a thread takes several of at once."""
    d, partial = out
    many = _near(size, d, g, x)
    grid, block = launch.walk(pixels(x), x.shape[-1], many)
    sizes, numbers = (np.uint32(pixels(x)), np.int32(x.shape[-1])), _lrn_numbers(size, **how)
    function = kernel("lrn", f"lrn_near_back<{kind(x)}, {many}, true>")
    arguments = (d, partial, g, x, *sizes, *numbers)
    function(grid, block, arguments, shared_mem=room(block, many))
