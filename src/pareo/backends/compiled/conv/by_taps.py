"""Convolution by few filters of many channels: each tap of a window is a filter of one pixel.

Few filters leave most of a register of filters empty. But all taps of all filters are many rows of
a product with an image, whose columns are its pixels. The rows are moved by their taps and added
up; for the gradient of the filters, the errors are moved first. Pixels that a tap does not see are
multiplied in vain: few at stride 1. float32.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import Sizes
from pareo.backends.compiled.conv import pointwise
from pareo.backends.compiled.conv.columns import valid_range
from pareo.backends.compiled.kernels.activations import NONE
from pareo.backends.compiled.kernels.linear import bias_activation_planes
from pareo.backends.compiled.runtime import registers
from pareo.backends.compiled.runtime.arrays import add_parts, add_to, copy, fill
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.lanes import LANES
from pareo.backends.compiled.runtime.product_tiles import DEPTH
from pareo.backends.compiled.runtime.register_products import WIDE
from pareo.backends.compiled.runtime.thread_pool import least_items, split_numbered, workers
from pareo.backends.sums import CHUNK
from pareo.spec import Spec

LEAST_CHANNELS = 12
FEW = 8  # filters, with which other ways are as fast if all pixels are seen
MOST = 1 << 18  # floats of an image's products, which stay in the second cache


def suits(x: Spec | Array, filters: Sizes, results: Spec | Array, **how: Any) -> bool:
    """Whether these shapes are worth it: masked registers are fast with AVX-512 only."""
    count, channels, *window = filters
    rows, pixels = count * window[0] * window[1], x.shape[2] * x.shape[3]
    seen = results.shape[2] * results.shape[3]
    return (
        registers.HAS_AVX512
        and x.dtype == np.float32
        and how["groups"] == 1
        and channels >= LEAST_CHANNELS
        and rows > count
        and max(how["padding"]) < min(window)  # so that each error is multiplied by some pixel
        and pixels >= LANES
        and min(count, x.shape[0]) > 0
        and rows * pixels <= MOST
        and pixels * count < FEW * seen
    )


def scratch(x: Spec, filters: Sizes) -> list[Spec]:
    """For every worker an image's products, and panels of its pixels; and the filters in order."""
    count, channels, high, wide = filters
    rows, pixels = count * high * wide, x.shape[2] * x.shape[3]
    parts = min(pointwise.AT_ONCE, -(-pixels // WIDE))
    panel = parts * min(DEPTH, max(channels, rows)) * WIDE
    return [
        x.like((workers(), 1, rows, pixels)),
        x.like((workers(), panel)),
        x.like((count, high, wide, channels)),
    ]


def gradient_scratch(x: Spec, filters: Sizes) -> list[Spec]:
    """For every worker some images' errors, a panel, and sums of the gradient, also in double."""
    count, channels, high, wide = filters
    rows, pixels = count * high * wide, x.shape[2] * x.shape[3]
    sums = (workers(), channels * rows)
    return [
        x.like((workers(), _at_once(x, rows), rows, pixels)),
        x.like((workers(), DEPTH * WIDE)),
        x.like(sums),
        Spec(sums, np.float64),
        x.like((channels, count, high, wide)),
    ]


def _at_once(x: Spec | Array, rows: int) -> int:
    """The images whose errors are moved at a time."""
    pixels = x.shape[2] * x.shape[3]
    most = max(1, min(MOST // (rows * pixels), CHUNK * DEPTH // pixels))
    return int(min(most, -(-x.shape[0] // workers())))


def _planes(images: Array) -> Array:
    return images.reshape(*images.shape[:2], images.shape[2] * images.shape[3])


def _shape(how: Mapping[str, Any]) -> Sizes:
    return (*how["stride"], *how["padding"][:2], *how["dilation"])


@jit
def _add_taps(out: Array, made: Array, size: Sizes, window: Sizes, shape: Sizes) -> None:
    """out (filters, rows, columns) = the sums of the products with each tap."""
    height, width = size
    down, along, top, left, dilated_down, dilated_along = shape
    for k in range(out.shape[0]):
        for i in range(out.shape[1]):
            row = out[k, i]
            row[:] = 0
            for dy in range(window[0]):
                y = i * down + dy * dilated_down - top
                if y < 0 or y >= height:
                    continue
                for dx in range(window[1]):
                    shift = dx * dilated_along - left
                    lo, hi = valid_range(out.shape[2], width, along, shift)
                    given = made[(k * window[0] + dy) * window[1] + dx, y * width : (y + 1) * width]
                    if along == 1:
                        for j in range(lo, hi):
                            row[j] += given[j + shift]
                    else:
                        for j in range(lo, hi):
                            row[j] += given[j * along + shift]


@jit
def _move_errors(made: Array, g: Array, size: Sizes, window: Sizes, shape: Sizes) -> None:
    """The reverse: each error at the pixels that each tap sees, and 0 at others."""
    height, width = size
    down, along, top, left, dilated_down, dilated_along = shape
    made[:] = 0
    for k in range(g.shape[0]):
        for dy in range(window[0]):
            for dx in range(window[1]):
                into = made[(k * window[0] + dy) * window[1] + dx]
                shift = dx * dilated_along - left
                lo, hi = valid_range(g.shape[2], width, along, shift)
                for i in range(g.shape[1]):
                    y = i * down + dy * dilated_down - top
                    if y < 0 or y >= height:
                        continue
                    line, row = into[y * width : (y + 1) * width], g[k, i]
                    if along == 1:
                        for j in range(lo, hi):
                            line[j + shift] = row[j]
                    else:
                        for j in range(lo, hi):
                            line[j * along + shift] = row[j]


@jit
def _forward_images(
    out: Array, x: Array, w: Array, made: Array, panels: Array, size: Sizes, window: Sizes,
    shape: Sizes, bias: Array, activation: int, lo: int, hi: int,
) -> None:  # fmt: skip
    parts = -(-x.shape[2] // WIDE)
    for n in range(lo, hi):
        pointwise.convolve(
            made, x[n : n + 1], w, False, bias[:0], NONE, panels, 0, w.shape[0], 0, parts
        )
        _add_taps(out[n], made[0], size, window, shape)
        if bias.size:
            planes = out[n : n + 1].reshape(1, out.shape[1], out.shape[2] * out.shape[3])
            bias_activation_planes(planes, planes, bias, activation)


@jit
def _weight_gradient_images(
    sums: Array, x: Array, g: Array, made: Array, panel: Array, size: Sizes, window: Sizes,
    shape: Sizes, lo: int, hi: int,
) -> None:  # fmt: skip
    """sums (channels, filters and taps) of some images."""
    for n in range(lo, hi):
        _move_errors(made[n - lo], g[n], size, window, shape)
    parts = (hi - lo) * -(-x.shape[2] // DEPTH)
    pointwise.add_up(sums, x[lo:hi], made[: hi - lo], panel, 0, x.shape[1], 0, parts)


def forward(
    out: Array, x: Array, w: Array, b: Array | None, activation: int, how: Mapping[str, Any],
    scratch: tuple[Array, ...],
) -> None:  # fmt: skip
    """out = activation(conv(x, w) + b); without a bias b is None."""
    made, panels, filters = scratch
    copy(filters, w.transpose(0, 2, 3, 1))
    matrix = filters.reshape(-1, w.shape[1])
    bias = np.zeros(0, w.dtype) if b is None else b
    planes, size, window, shape = _planes(x), x.shape[2:], w.shape[2:], _shape(how)

    def work(worker: int, lo: int, hi: int) -> None:
        _forward_images(
            out, planes, matrix, made[worker], panels[worker], size, window, shape, bias,
            activation, lo, hi,
        )  # fmt: skip

    split_numbered(work, len(x), least_items(len(x), _flops(x, w)))


def weight_gradient(
    out: Array, x: Array, g: Array, how: Mapping[str, Any], scratch: tuple[Array, ...]
) -> None:
    """out = the gradient of the filters; not finite if an image is not."""
    made, panels, sums, totals, turned = scratch
    planes, size, window, shape = _planes(x), x.shape[2:], out.shape[2:], _shape(how)
    rows = out.size // max(1, x.shape[1])
    at_once = made.shape[1]

    def work(worker: int, lo: int, hi: int) -> None:
        fill(totals[worker], 0)
        matrix = sums[worker].reshape(x.shape[1], rows)
        for first in range(lo, hi, at_once):
            _weight_gradient_images(
                matrix, planes, g, made[worker], panels[worker], size, window, shape, first,
                min(first + at_once, hi),
            )  # fmt: skip
            add_to(totals[worker], sums[worker])

    parts = split_numbered(work, len(x), least_items(len(x), _flops(x, out)))
    add_parts(turned.reshape(-1), totals, parts)
    copy(out, turned.transpose(1, 0, 2, 3))


def _flops(x: Array, w: Array) -> int:
    return int(2 * w.size * x.shape[0] * x.shape[2] * x.shape[3])
