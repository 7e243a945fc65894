"""Convolution by filters of a single pixel: products of matrices that read images where they lie.

A result is filters by channels times channels by pixels, whose columns are pixels of an image, some
of which a register holds. The gradient of the filters sums over pixels: those of the factor with
fewer channels are turned to rows first, some at a time. With a stride, the pixels that filters see
are copied first. float32, without padding.
"""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import Sizes
from pareo.backends.compiled.kernels.activations import NONE
from pareo.backends.compiled.kernels.linear import bias_activation_planes
from pareo.backends.compiled.runtime import registers
from pareo.backends.compiled.runtime.array_at import vector_at
from pareo.backends.compiled.runtime.arrays import add_parts, add_to, copy, fill
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.lanes import LANES
from pareo.backends.compiled.runtime.product_tiles import (
    DEPTH,
    ONE,
    multiply_panel,
    tile_height,
    turn_rows,
)
from pareo.backends.compiled.runtime.register_products import WIDE, masked_product_tile
from pareo.backends.compiled.runtime.thread_pool import least_items, split, split_numbered, workers
from pareo.backends.sums import CHUNK
from pareo.spec import Spec

MANY = 8  # parts of images for each worker: with fewer, workers have rows of the result instead
AT_ONCE = 16  # panels of pixels
RESULT_COST = 4  # of a number of the result, if it is turned, in numbers of the images
LEAST_ROWS = 4  # of the result that are worth a worker


def suits(
    x: Spec | Array, filters: Sizes, *, stride: Sizes, padding: Sizes, groups: int,
    dilation: Sizes,
) -> bool:  # fmt: skip
    """Whether these shapes are worth it: masked registers are fast with AVX-512 only."""
    is_pointwise = tuple(filters[2:]) == (1, 1) and not any(padding)
    seen = _results(x.shape[2:], stride)
    return (
        registers.HAS_AVX512
        and is_pointwise
        and groups == 1
        and x.dtype == np.float32
        and seen[0] * seen[1] >= LANES
        and min(x.shape[0], *filters[:2]) > 0
    )


def _results(size: Sizes, stride: Sizes) -> Sizes:
    """Rows and columns of pixels that filters see."""
    return -(-size[0] // stride[0]), -(-size[1] // stride[1])


def _seen(x: Spec, stride: Sizes) -> list[Spec]:
    """The pixels that filters see, if those are not all."""
    is_all = tuple(stride) == (1, 1)
    return [] if is_all else [x.like((*x.shape[:2], *_results(x.shape[2:], stride)))]


def scratch(x: Spec, depth: int, stride: Sizes) -> list[Spec]:
    """For every worker panels of pixels, of so many channels; and the pixels that filters see."""
    high, wide = _results(x.shape[2:], stride)
    parts = min(AT_ONCE, -(-high * wide // WIDE))
    return [x.like((workers(), parts * min(DEPTH, depth) * WIDE)), *_seen(x, stride)]


def gradient_scratch(x: Spec, filters: Sizes, stride: Sizes) -> list[Spec]:
    """For every worker a panel of pixels, and the sums of the filters' gradient; and `_seen`.

    For many images also sums in double precision.
    """
    sizes = DEPTH * WIDE, filters[0] * filters[1]
    panels, sums = (x.like((workers(), size)) for size in sizes)
    parts = _parts((*x.shape[:2], *_results(x.shape[2:], stride)), DEPTH)
    totals = [Spec(sums.shape, np.float64)] if parts > CHUNK else []
    return [panels, sums, *totals, *_seen(x, stride)]


def _parts(images: Sizes, size: int) -> int:
    """How many parts of so many pixels images of a shape have."""
    return images[0] * -(-images[2] * images[3] // size)


def _planes(images: Array) -> Array:
    return images.reshape(*images.shape[:2], images.shape[2] * images.shape[3])


def forward(
    out: Array, x: Array, w: Array, b: Array | None, activation: int, stride: Sizes,
    scratch: tuple[Array, ...],
) -> None:  # fmt: skip
    """out = activation(conv(x, w) + b); without a bias b is None."""
    x = _sampled(x, stride, scratch[1:])
    bias = np.zeros(0, w.dtype) if b is None else b
    _run(out, x, w.reshape(w.shape[:2]), False, bias, activation, scratch[0])


def input_gradient(
    out: Array, g: Array, w: Array, stride: Sizes, scratch: tuple[Array, ...]
) -> None:
    """out = the gradient of the images, from that of the outputs."""
    panels, *seen = scratch
    made = seen[0] if seen else out
    _run(made, g, w.reshape(w.shape[:2]), True, np.zeros(0, w.dtype), NONE, panels)
    if seen:
        split(lambda lo, hi: _spread(out[lo:hi], made[lo:hi], *stride), len(out))


def _sampled(x: Array, stride: Sizes, seen: tuple[Array, ...]) -> Array:
    """The pixels that filters see, in `seen` if those are not all."""
    if not seen:
        return x
    split(lambda lo, hi: _sample(seen[0][lo:hi], x[lo:hi], *stride), len(x))
    return seen[0]


@jit
def _sample(seen: Array, x: Array, down: int, along: int) -> None:
    """Every so many rows and columns of images."""
    for n in range(x.shape[0]):
        for c in range(x.shape[1]):
            for row in range(seen.shape[2]):
                given, into = x[n, c, row * down], seen[n, c, row]
                for column in range(seen.shape[3]):
                    into[column] = given[column * along]


@jit
def _spread(x: Array, seen: Array, down: int, along: int) -> None:
    """The reverse, with zeros between."""
    for n in range(x.shape[0]):
        for c in range(x.shape[1]):
            for row in range(x.shape[2]):
                x[n, c, row] = 0
                if row % down == 0:
                    into, given = x[n, c, row], seen[n, c, row // down]
                    for column in range(seen.shape[3]):
                        into[column * along] = given[column]


def _run(
    out: Array, x: Array, w: Array, backward: bool, bias: Array, activation: int, panels: Array
) -> None:
    """All images, cut into parts of pixels, or where those are few into rows of the result."""
    rows, parts = out.shape[1], _parts(x.shape, WIDE)

    def by_pixels(worker: int, lo: int, hi: int) -> None:
        convolve(
            _planes(out), _planes(x), w, backward, bias, activation, panels[worker], 0, rows, lo, hi
        )

    def by_rows(worker: int, lo: int, hi: int) -> None:
        convolve(
            _planes(out), _planes(x), w, backward, bias, activation, panels[worker], lo, hi, 0,
            parts,
        )  # fmt: skip

    flops = 2 * out.size * x.shape[1]
    if parts >= MANY * workers():
        split_numbered(by_pixels, parts, least_items(parts, flops))
    else:
        split_numbered(by_rows, rows, max(LEAST_ROWS, least_items(rows, flops)))


@jit
def convolve(
    out: Array, x: Array, w: Array, backward: bool, bias: Array, activation: int, panels: Array,
    top: int, bottom: int, lo: int, hi: int,
) -> None:  # fmt: skip
    """Rows top to bottom of parts lo to hi, of WIDE pixels: out = w @ x, or w.T @ x."""
    depth, pixels = x.shape[1], x.shape[2]
    each, height = -(-pixels // WIDE), tile_height(bottom - top)
    row, along = 4 * w.shape[1], 4
    if backward:
        row, along = along, row
    part = lo
    while part < hi:
        n, start = part // each, part % each * WIDE
        parts = min(AT_ONCE, hi - part, each - part % each)
        wide = min(parts * WIDE, pixels - start)
        into = out.ctypes.data + 4 * (n * out.shape[1] * pixels + start)
        for first in range(0, depth, DEPTH):
            count = min(DEPTH, depth - first)
            given = x.ctypes.data + 4 * ((n * depth + first) * pixels + start)
            _copy_panels(panels.ctypes.data, given, 4 * pixels, count, wide)
            for i in range(top, bottom, height):
                for at in range(0, wide, WIDE):
                    masked_product_tile(
                        min(height, bottom - i), min(WIDE, wide - at), first, 0, ONE,
                        (into + 4 * (i * pixels + at), 4 * pixels),
                        (w.ctypes.data + i * row + first * along, row, 0, 0, along),
                        (panels.ctypes.data + 4 * at * count, 0, 0, 4 * WIDE), (1, 1, count),
                    )  # fmt: skip
        if bias.size:
            made = out[n : n + 1, top:bottom, start : start + wide]
            bias_activation_planes(made, made, bias[top:bottom], activation)
        part += parts


@jit
def _copy_panels(panels: int, x: int, row_bytes: int, count: int, wide: int) -> None:
    """Panels of WIDE columns, for the first `wide` numbers of so many rows."""
    for d in range(count):
        for at in range(0, wide, WIDE):
            into = vector_at(panels + 4 * (at * count + d * WIDE), WIDE)
            given = vector_at(x + d * row_bytes + 4 * at, WIDE)
            if wide - at >= WIDE:
                for j in range(WIDE):
                    into[j] = given[j]
            else:
                for j in range(wide - at):
                    into[j] = given[j]


def weight_gradient(
    out: Array, x: Array, g: Array, stride: Sizes, scratch: tuple[Array, ...]
) -> None:
    """out = the gradient of the filters."""
    panels, sums, *more = scratch
    parts = _parts((*x.shape[:2], *g.shape[2:]), DEPTH)
    totals = [more.pop(0)] if parts > CHUNK else []
    x = _sampled(x, stride, tuple(more))
    filters, channels = out.shape[:2]
    # Rows of the sums are channels where that saves turning more than the result costs to turn.
    extra = (channels - filters) * len(x) * x.shape[2] * x.shape[3]
    turned = extra > RESULT_COST * out.size
    a, b = (_planes(x), _planes(g)) if turned else (_planes(g), _planes(x))
    rows, columns = a.shape[1], b.shape[1]
    sums = sums.reshape(len(sums), rows, columns)
    totals = [one.reshape(sums.shape) for one in totals]

    def by_pixels(worker: int, lo: int, hi: int) -> None:
        for one in totals:
            fill(one[worker], 0)
        for first in range(lo, hi, CHUNK):
            add_up(sums[worker], a, b, panels[worker], 0, rows, first, min(first + CHUNK, hi))
            for one in totals:
                add_to(one[worker], sums[worker])

    def by_rows(worker: int, lo: int, hi: int) -> None:
        add_up(sums[0], a, b, panels[worker], lo, hi, 0, parts)

    flops = 2 * g.size * channels
    if parts >= MANY * workers():
        least = least_items(parts, flops)
        found, count = (totals or [sums])[0], split_numbered(by_pixels, parts, least)
    else:
        split_numbered(by_rows, rows, max(LEAST_ROWS, least_items(rows, flops)))
        found, count = sums, 1
    if turned:
        add_parts(sums[0], found, count)
        copy(out[:, :, 0, 0], sums[0].T)
    else:
        add_parts(out, found, count)


@jit
def add_up(
    sums: Array, a: Array, b: Array, panel: Array, top: int, bottom: int, lo: int, hi: int
) -> None:
    """Rows top to bottom of sums = the sum over n of a[n] @ b[n].T, of parts of DEPTH pixels."""
    rows, columns, pixels = a.shape[1], b.shape[1], a.shape[2]
    each = -(-pixels // DEPTH)
    for part in range(lo, hi):
        n, start = part // each, part % each * DEPTH
        count = min(DEPTH, pixels - start)
        for column in range(0, columns, WIDE):
            wide = min(WIDE, columns - column)
            turn_rows(
                panel.ctypes.data, b.ctypes.data + 4 * ((n * columns + column) * pixels + start),
                4 * pixels, wide, count,
            )  # fmt: skip
            multiply_panel(
                (top, bottom), wide, part - lo, 0, ONE,
                (sums.ctypes.data + 4 * column, 4 * columns),
                (a.ctypes.data + 4 * (n * rows * pixels + start), 4 * pixels, 4),
                (panel.ctypes.data, 4 * WIDE), count,
            )  # fmt: skip
