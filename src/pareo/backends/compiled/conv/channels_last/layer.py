"""Convolution with channels last: products read windows where they lie, nothing is gathered.

Some rows of an image, or some images, are copied into a buffer in which the channels of a pixel are
next to each other; the products of `loops` read it, and their results are copied back. That is two
passes over the images, where `im2col` writes and reads every pixel once for each tap. float32.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import Sizes
from pareo.backends.compiled.conv import direct
from pareo.backends.compiled.conv.channels_last import loops
from pareo.backends.compiled.runtime.arrays import copy, fill
from pareo.backends.compiled.runtime.lanes import LANES, padded_channels
from pareo.backends.compiled.runtime.register_products import WIDE
from pareo.backends.compiled.runtime.thread_pool import least_items, split_numbered, workers
from pareo.spec import Spec

LEAST_CHANNELS = 8  # of a gradient of images: fewer leave most of a register empty
BUFFER_BYTES = 512 << 10  # of the images at hand, for each worker: half of a core's cache
PART_BYTES = 256 << 10  # the same where an image is cut into rows
PANEL_BYTES = 256 << 10  # of filters that all windows at hand are multiplied by: a fourth of it
PACK_FLOPS = 32  # as long as which copying a filter's number takes
MUCH_PADDING = 0.9  # the share of products with pixels below which the others are left out
LARGE_SUMS_BYTES = 512 << 10  # of a gradient: larger ones are cut into panels of filters


class Part(NamedTuple):
    """How images are cut: so many at a time, or so many rows of one."""

    images: int
    rows: int

    def counts(self, images: int, rows: int) -> tuple[int, int]:
        """Into how many parts images and rows are cut."""
        return -(-images // self.images), -(-rows // self.rows)


def suits(
    x: Spec | Array, filters: Sizes, out: Spec | Array, *, stride: Sizes, padding: Sizes,
    dilation: Sizes, groups: int,
) -> bool:  # fmt: skip
    """Whether these shapes are worth it; `out` has the outputs or their gradients."""
    is_plain = tuple(dilation) == (1, 1) and groups == 1 and x.dtype == np.float32
    is_pointwise = tuple(filters[2:]) == (1, 1) == tuple(stride)  # needs no columns at all
    is_within = (
        max(padding[0], padding[2]) < filters[2] and max(padding[1], padding[3]) < filters[3]
    )
    has_pixels = min(*x.shape, *out.shape, *filters) > 0
    return is_plain and is_within and has_pixels and not is_pointwise


def suits_input_gradient(
    x: Spec | Array, filters: Sizes, out: Spec | Array, *, stride: Sizes, padding: Sizes,
    dilation: Sizes, groups: int,
) -> bool:  # fmt: skip
    """The same for the gradient of the images, whose channels fill the registers."""
    is_wide = filters[1] >= LEAST_CHANNELS
    how = {"stride": stride, "padding": padding, "dilation": dilation}
    return is_wide and suits(x, filters, out, groups=groups, **how)


def _cut(x: Sizes, filters: Sizes, out: Sizes, stride: Sizes, padding: Sizes) -> Part:
    """As many images at a time as a buffer holds, or some rows of one."""
    images, _, height, _ = out
    share = -(-images // workers())
    lines, results = _line_bytes(x, filters, out, stride, padding)
    whole = ((height - 1) * stride[0] + filters[2]) * lines + height * results
    if images >= workers() and whole <= BUFFER_BYTES:
        return Part(min(share, BUFFER_BYTES // whole), height)
    rows = (PART_BYTES - filters[2] * lines) // (stride[0] * lines + results)
    each = -(-images * height // workers()) if images < workers() else height
    return Part(1, max(1, min(rows, each, height)))


def _line_bytes(
    x: Sizes, filters: Sizes, out: Sizes, stride: Sizes, padding: Sizes
) -> tuple[int, int]:
    """Bytes of a line of a padded image, and of a row of its results."""
    padded = loops.padded_width.py_func(x[3], out[3], padding[1], filters[3], stride[1])
    return 4 * padded * x[1], 4 * out[3] * padded_channels(out[1])


def _buffers(x: Spec, filters: Sizes, out: Spec, stride: Sizes, padding: Sizes) -> list[Spec]:
    """For every worker: padded images, and their results."""
    part = _cut(x.shape, filters, out.shape, stride, padding)
    line, results = _line_bytes(x.shape, filters, out.shape, stride, padding)
    lines = (part.rows - 1) * stride[0] + filters[2]
    return [
        x.like((workers(), part.images * lines * line // 4)),
        x.like((workers(), part.images * part.rows * results // 4)),
    ]


def scratch(x: Spec, filters: Sizes, out: Spec, stride: Sizes, padding: Sizes) -> list[Spec]:
    """Of a convolution: filters in panels, and buffers; before them the core of filters."""
    core = _core(x.shape, filters, out.shape, stride, padding)
    if core is not None:
        inside = _plain_scratch(x, core.filters, out, stride, core.padding)
        return [x.like(core.filters), *inside]
    return _plain_scratch(x, filters, out, stride, padding)


def _plain_scratch(x: Spec, filters: Sizes, out: Spec, stride: Sizes, padding: Sizes) -> list[Spec]:
    depth = filters[1] * filters[2] * filters[3]
    packed = x.like((depth * padded_channels(filters[0]),))
    return [packed, *_buffers(x, filters, out, stride, padding)]


def gradient_scratch(x: Spec, filters: Sizes, g: Spec, stride: Sizes, padding: Sizes) -> list[Spec]:
    """Of the filters' gradient: sums for every worker, and buffers; before them the core's."""
    core = _core(x.shape, filters, g.shape, stride, padding)
    if core is not None:
        inside = _plain_gradient_scratch(x, core.filters, g, stride, core.padding)
        return [x.like(core.filters), *inside]
    return _plain_gradient_scratch(x, filters, g, stride, padding)


def _plain_gradient_scratch(
    x: Spec, filters: Sizes, g: Spec, stride: Sizes, padding: Sizes
) -> list[Spec]:
    depth = filters[1] * filters[2] * filters[3]
    sums = x.like((workers(), depth * padded_channels(filters[0])))
    return [sums, *_buffers(x, filters, g, stride, padding)]


def input_scratch(out: Spec, g: Spec, filters: Sizes, stride: Sizes, padding: Sizes) -> list[Spec]:
    """Of the images' gradient: filters in panels, and an image of errors and results a worker.

    Before them the core of filters.
    """
    core = _core(out.shape, filters, g.shape, stride, padding)
    if core is not None:
        inside = _plain_input_scratch(out, g, core.filters, stride, core.padding)
        return [g.like(core.filters), *inside]
    return _plain_input_scratch(out, g, filters, stride, padding)


def _plain_input_scratch(
    out: Spec, g: Spec, filters: Sizes, stride: Sizes, padding: Sizes
) -> list[Spec]:
    _, _, height, width = out.shape
    _, lines = loops.padded_errors.py_func(height, padding[0], filters[2], stride[0])
    _, padded = loops.padded_errors.py_func(width, padding[1], filters[3], stride[1])
    whole = padded_channels(filters[1])
    return [
        g.like((filters[0] * (filters[2] * filters[3] * whole + WIDE) + LANES,)),
        g.like((workers(), lines * padded * filters[0])),
        g.like((workers(), _input_rows(out.shape) * width * whole)),
    ]


def _input_rows(out: Sizes) -> int:
    """Rows of an image's gradient that are computed together."""
    images, _, height, _ = out
    return height if images >= workers() else -(-images * height // workers())


def forward(
    out: Array, x: Array, w: Array, b: Array | None, activation: int, stride: Sizes,
    padding: Sizes, scratch: tuple[Array, ...],
) -> None:  # fmt: skip
    """out = activation(conv(x, w) + b); without a bias b is None."""
    core = _core(x.shape, w.shape, out.shape, stride, padding)
    if core is not None:
        inner, *scratch_of_core = scratch
        core.take(inner, w)
        _forward(out, x, inner, b, activation, stride, core.padding, scratch_of_core)
    else:
        _forward(out, x, w, b, activation, stride, padding, scratch)
    if core is not None or _has_much_padding(x.shape, w.shape, out.shape, stride, padding):
        direct.padding_times_filters(out, x, w, *stride, *padding[:2], 1, 1)


def _forward(
    out: Array, x: Array, w: Array, b: Array | None, activation: int, stride: Sizes,
    padding: Sizes, scratch: Sequence[Array],
) -> None:  # fmt: skip
    packed, buffers, results = scratch
    filters, channels, kh, kw = w.shape
    bias = np.zeros(padded_channels(filters), x.dtype)
    if b is not None:
        copy(bias[:filters], b)
    part = _cut(x.shape, w.shape, out.shape, stride, padding)
    images, rows = part.counts(len(out), out.shape[2])
    skips = _has_much_padding(x.shape, w.shape, out.shape, stride, padding)

    def pack(_: int, lo: int, hi: int) -> None:
        loops.pack_filters(packed, _taps(w), lo, hi)

    def work(worker: int, lo: int, hi: int) -> None:
        for number in range(lo, hi):
            image, row = number // rows * part.images, number % rows * part.rows
            loops.forward(
                _planes(out), _planes(x), packed, channels, filters, kh, kw, *stride, *padding[:2],
                bias, activation, image, min(part.images, len(out) - image), row,
                min(part.rows, out.shape[2] - row), buffers[worker], results[worker], skips,
                PANEL_BYTES,
            )  # fmt: skip

    vectors, parts = padded_channels(filters) // LANES, images * rows
    split_numbered(pack, vectors, least_items(vectors, PACK_FLOPS * w.size))
    split_numbered(work, parts, least_items(parts, 2 * out.size * w[0].size))


def weight_gradient(
    out: Array, x: Array, g: Array, stride: Sizes, padding: Sizes, scratch: tuple[Array, ...]
) -> None:
    """out = the gradient of the filters."""
    core = _core(x.shape, out.shape, g.shape, stride, padding)
    if core is not None:
        inner, *scratch_of_core = scratch
        _weight_gradient(inner, x, g, stride, core.padding, scratch_of_core)
        core.put(out, inner)
    else:
        _weight_gradient(out, x, g, stride, padding, scratch)
    if core is not None or _has_much_padding(x.shape, out.shape, g.shape, stride, padding):
        direct.padding_times_gradients(out, x, g, *stride, *padding[:2], 1, 1)


def _weight_gradient(
    out: Array, x: Array, g: Array, stride: Sizes, padding: Sizes, scratch: Sequence[Array]
) -> None:
    sums, buffers, errors = scratch
    filters, channels, kh, kw = out.shape
    part = _cut(x.shape, out.shape, g.shape, stride, padding)
    images, rows = part.counts(len(g), g.shape[2])
    skips = _has_much_padding(x.shape, out.shape, g.shape, stride, padding)

    def add(worker: int, lo: int, hi: int, first: int, own: int) -> None:
        if lo == hi:
            fill(sums[worker], 0)
        for number in range(lo, hi):
            image, row = number // rows * part.images, number % rows * part.rows
            loops.add_weight_gradient(
                sums[worker], number - lo, _planes(x), _planes(g), channels, filters, first, own,
                kh, kw, *stride, *padding[:2], image, min(part.images, len(g) - image), row,
                min(part.rows, g.shape[2] - row), buffers[worker], errors[worker], skips,
            )  # fmt: skip

    def panels(worker: int, lo: int, hi: int) -> None:
        first, last = lo * WIDE, min(hi * WIDE, filters)
        if first < last:
            add(worker, 0, images * rows, first, last - first)
            count = -(-(last - first) // LANES)
            loops.unpack_sums(_taps(out)[first:last], sums[worker : worker + 1], 0, count)

    if _by_panels(out.shape):
        split_numbered(panels, -(-filters // WIDE))
        return
    least = least_items(images * rows, 2 * g.size * out[0].size)
    parts = split_numbered(
        lambda worker, lo, hi: add(worker, lo, hi, 0, filters), images * rows, least
    )

    def unpack(_: int, lo: int, hi: int) -> None:
        loops.unpack_sums(_taps(out), sums[:parts], lo, hi)

    vectors = padded_channels(filters) // LANES
    split_numbered(unpack, vectors, least_items(vectors, PACK_FLOPS * out.size))


@cache
def _has_much_padding(x: Sizes, filters: Sizes, out: Sizes, stride: Sizes, padding: Sizes) -> bool:
    """Whether windows reach so far beyond the images that leaving out products is worth it."""
    share = 1.0
    for axis in (0, 1):
        places, pixels, window = out[2 + axis], x[2 + axis], filters[2 + axis]
        starts = range(-padding[axis], places * stride[axis] - padding[axis], stride[axis])
        taps = [loops.met.py_func(start, 1, 1, window, pixels) for start in starts]
        share *= sum(last - first for first, last in taps) / (places * window)
    return share < MUCH_PADDING


class Core(NamedTuple):
    """The taps of filters that meet any pixel: filters can be larger than images."""

    row: int  # the first
    column: int
    filters: Sizes  # their shape
    padding: Sizes  # of their windows

    def take(self, inner: Array, filters: Array) -> None:
        """Copy these taps of filters."""
        loops.take_core(_planes(inner), _planes(filters), self.row, self.column)

    def put(self, filters: Array, inner: Array) -> None:
        """Copy them back among taps that are 0."""
        loops.put_core(_planes(filters), _planes(inner), self.row, self.column)


@cache
def _core(x: Sizes, filters: Sizes, out: Sizes, stride: Sizes, padding: Sizes) -> Core | None:
    """The core of filters; None if that is nearly all of them."""
    (row, below), (column, after) = (
        loops.met.py_func(
            -padding[axis], out[2 + axis], stride[axis], filters[2 + axis], x[2 + axis]
        )
        for axis in (0, 1)
    )
    high, wide = below - row, after - column
    if high * wide > MUCH_PADDING * filters[2] * filters[3]:
        return None
    inner = (padding[0] - row, padding[1] - column, *padding[2:])
    return Core(row, column, (*filters[:2], high, wide), inner)


def _by_panels(filters: Sizes) -> bool:
    """Whether workers have panels of filters each, instead of images.

    Then no sums have to be added up, and each worker copies all images.
    """
    numbers = filters[1] * filters[2] * filters[3] * padded_channels(filters[0])
    return 4 * numbers > LARGE_SUMS_BYTES and filters[0] >= workers() * WIDE


def input_gradient(
    out: Array, g: Array, w: Array, stride: Sizes, padding: Sizes, scratch: tuple[Array, ...]
) -> None:
    """out = the gradient of the images, from that of the outputs."""
    core = _core(out.shape, w.shape, g.shape, stride, padding)
    if core is not None:
        inner, *scratch_of_core = scratch
        core.take(inner, w)
        _input_gradient(out, g, inner, stride, core.padding, scratch_of_core)
    else:
        _input_gradient(out, g, w, stride, padding, scratch)


def _input_gradient(
    out: Array, g: Array, w: Array, stride: Sizes, padding: Sizes, scratch: Sequence[Array]
) -> None:
    packed, buffers, results = scratch
    filters, channels, kh, kw = w.shape
    height, each = out.shape[2], _input_rows(out.shape)
    rows = -(-height // each)

    def pack(_: int, lo: int, hi: int) -> None:
        loops.pack_reversed(packed, _taps(w), kh, kw, *stride, lo, hi)

    def work(worker: int, lo: int, hi: int) -> None:
        for number in range(lo, hi):
            row = number % rows * each
            loops.input_gradient(
                _planes(out), _planes(g), packed, channels, filters, kh, kw, *stride, *padding[:2],
                number // rows, row, min(each, height - row), buffers[worker], results[worker],
                PANEL_BYTES,
            )  # fmt: skip

    vectors, parts = padded_channels(channels) // LANES, len(out) * rows
    split_numbered(pack, vectors, least_items(vectors, PACK_FLOPS * w.size))
    split_numbered(work, parts, least_items(parts, 2 * g.size * w[0].size))


def _planes(images: Array) -> Array:
    return images.reshape(-1, *images.shape[2:])


def _taps(w: Array) -> Array:
    """Filters with all taps in one axis."""
    return w.reshape(*w.shape[:2], w.shape[2] * w.shape[3])
