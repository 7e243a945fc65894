"""Convolution as a matrix product: every window of an image becomes a column of a matrix.

Some rows of one image's results are done at a time, so that their columns are still in the cache
when BLAS multiplies them; for images with few results, see `small_planes`. Images are split over
the threads, each with its own memory for columns. If there are fewer images than threads, each
image is split: forward by rows of the result, backward by channels.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from pareo.array import Array
from pareo.backends import blas
from pareo.backends.compiled.backend import Sizes
from pareo.backends.compiled.conv import small_planes
from pareo.backends.compiled.conv.columns import gather, scatter
from pareo.backends.compiled.kernels.linear import bias_activation_planes
from pareo.backends.compiled.runtime.arrays import add_parts, add_to, fill
from pareo.backends.compiled.runtime.gemm import product
from pareo.backends.compiled.runtime.thread_pool import least_items, split_numbered, workers
from pareo.backends.sums import CHUNK
from pareo.spec import Spec

COLUMN_BYTES = 512 << 10  # of the rows at hand
LEAST_PIXELS = 128  # of these rows: narrower products are slow


def _is_pointwise(window: Sizes, stride: Sizes, padding: Sizes) -> bool:
    """Whether an image is already its own matrix of columns."""
    return tuple(window) == (1, 1) == tuple(stride) and not any(padding)


def scratch(
    x: Spec, g: Spec, window: Sizes, stride: Sizes, padding: Sizes, groups: int
) -> list[Spec]:
    """Memory for the columns of some rows of one group, or of some images, for every worker."""
    pointwise = _is_pointwise(window, stride, padding)
    if small_planes.suits(g, groups, pointwise):
        return small_planes.scratch(x, g, window)
    if pointwise:
        return [x.like((0,))]
    depth = x.shape[1] // groups * window[0] * window[1]
    return [x.like((workers(), depth, _rows_at_once(g, depth) * g.shape[3]))]


def _rows_at_once(g: Spec | Array, depth: int) -> int:
    """How many rows of the results have their columns in memory at a time."""
    height, width = g.shape[2:]
    pixels = max(LEAST_PIXELS, COLUMN_BYTES // (g.dtype.itemsize * max(1, depth)))
    return max(1, min(height, pixels // max(1, width)))


def _stretches(height: int, rows: int) -> list[tuple[int, int]]:
    return [(lo, min(lo + rows, height)) for lo in range(0, height, rows)]


def _cut(memory: Array, depth: int, pixels: int) -> Array:
    """A matrix of these sizes, at the start of the memory."""
    return memory.reshape(-1)[: depth * pixels].reshape(depth, pixels)


def _shape(window: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> Sizes:
    return (*window, *stride, *padding[:2], *dilation)


def _below(shape: Sizes, row: int) -> Sizes:
    """The same for the windows from this row of the results on."""
    kh, kw, sh, sw, top, *rest = shape
    return (kh, kw, sh, sw, top - row * sh, *rest)


def _grouped(a: Array, groups: int, plane: Sizes) -> Array:
    """Images (N, C, H, W) as (N, groups, C / groups, *plane).

    All sizes are given, because NumPy cannot infer one if a batch is empty.
    """
    return a.reshape(a.shape[0], groups, a.shape[1] // groups, *plane)


def _fewer_than_workers(images: int) -> bool:
    """Whether there are too few images for all workers."""
    return images < workers()


def _of_image(
    work: Callable[[int, int, int, int], None], n: int, part: int, lo: int, hi: int
) -> None:
    work(part, n, lo, hi)


def forward(
    out: Array, x: Array, w: Array, b: Array | None, activation: int,
    stride: Sizes, padding: Sizes, dilation: Sizes, groups: int,
    scratch: tuple[Array, ...],
) -> None:  # fmt: skip
    """out = activation(conv(x, w) + b); without a bias b is None."""
    window = w.shape[2:]
    pointwise = _is_pointwise(window, stride, padding)
    if small_planes.suits(out, groups, pointwise):
        shape = _shape(window, stride, padding, dilation)
        small_planes.forward(out, x, w, b, activation, shape, scratch)
        return
    columns = scratch[0]
    height, width = out.shape[2:]
    filters = w.reshape(groups, w.shape[0] // groups, w[0].size)
    planes = _grouped(out, groups, (height * width,))
    images = _grouped(x, groups, x.shape[2:])
    top, left = padding[:2]
    at_once = height if pointwise else _rows_at_once(out, w[0].size)

    def rows(part: int, n: int, lo: int, hi: int) -> None:
        """Rows lo to hi of image n's result."""
        for start in range(lo, hi, at_once):
            stretch(part, n, start, min(start + at_once, hi))

    def stretch(part: int, n: int, lo: int, hi: int) -> None:
        pixels = slice(lo * width, hi * width)
        for group in range(groups):
            if pointwise:
                matrix = images[n, group].reshape(-1, height * width)[:, pixels]
            else:
                matrix = _cut(columns[part], filters.shape[2], (hi - lo) * width)
                gather(
                    matrix, 0, images[n, group], hi - lo, width, *window, *stride,
                    top - lo * stride[0], left, *dilation,
                )  # fmt: skip
            product(planes[n, group][:, pixels], filters[group], matrix)
        if b is not None:
            whole = out[n : n + 1].reshape(1, out.shape[1], height * width)[:, :, pixels]
            bias_activation_planes(whole, whole, b, activation)

    blas.threads(1)
    flops = 2 * out.size * w[0].size
    if _fewer_than_workers(len(x)):
        for n in range(len(x)):
            least = least_items(height, flops // len(x))
            split_numbered(partial(_of_image, rows, n), height, least)
        return

    def work(part: int, lo: int, hi: int) -> None:
        for n in range(lo, hi):
            rows(part, n, 0, height)

    split_numbered(work, len(x), least_items(len(x), flops))


def input_gradient(
    out: Array, g: Array, w: Array, stride: Sizes,
    padding: Sizes, dilation: Sizes, groups: int, scratch: tuple[Array, ...],
) -> None:  # fmt: skip
    """out = the gradient of the images, from that of the outputs."""
    window = w.shape[2:]
    shape = _shape(window, stride, padding, dilation)
    pointwise = _is_pointwise(window, stride, padding)
    if small_planes.suits(g, groups, pointwise):
        small_planes.input_gradient(out, g, w, shape, scratch)
        return
    columns = scratch[0]
    taps = window[0] * window[1]
    pixels = g.shape[2] * g.shape[3]
    filters = w.reshape(groups, w.shape[0] // groups, w[0].size)
    gradients = _grouped(g, groups, (pixels,))
    images = _grouped(out, groups, out.shape[2:])
    height, width = g.shape[2:]
    stretches = _stretches(height, _rows_at_once(g, w[0].size))

    def channels(part: int, n: int, lo: int, hi: int) -> None:
        """Channels lo to hi of image n, of each group."""
        for group in range(groups):
            image, given = images[n, group, lo:hi], gradients[n, group]
            back = filters[group][:, lo * taps : hi * taps].T
            if pointwise:
                product(image.reshape(-1, pixels), back, given)
                continue
            fill(image, 0)
            for first, last in stretches:
                matrix = _cut(columns[part], len(back), (last - first) * width)
                product(matrix, back, given[:, first * width : last * width])
                scatter(image, matrix, 0, last - first, width, *_below(shape, first))

    _by_channels(channels, len(g), w.shape[1], 2 * g.size * w[0].size)


def _by_channels(
    work: Callable[[int, int, int, int], None], images: int, channels: int, flops: int
) -> int:
    """Run work(part, image, first channel, last), split by images, or by channels if few."""
    blas.threads(1)
    if _fewer_than_workers(images):
        for n in range(images):
            least = least_items(channels, flops // images)
            split_numbered(partial(_of_image, work, n), channels, least)
        return 1

    def over(part: int, lo: int, hi: int) -> None:
        for n in range(lo, hi):
            work(part, n, 0, channels)

    return split_numbered(over, images, least_items(images, flops))


def weight_gradient(
    out: Array, x: Array, g: Array, stride: Sizes,
    padding: Sizes, dilation: Sizes, groups: int, scratch: tuple[Array, ...],
    sums: Array, totals: list[Array],
) -> None:  # fmt: skip
    """out = the gradient of the filters; sums and totals are from `sums_scratch`."""
    window = out.shape[2:]
    shape = _shape(window, stride, padding, dilation)
    pointwise = _is_pointwise(window, stride, padding)
    if small_planes.suits(g, groups, pointwise):
        small_planes.weight_gradient(out, x, g, shape, scratch, sums, totals)
        return
    columns = scratch[0]
    taps = window[0] * window[1]
    pixels = g.shape[2] * g.shape[3]
    gradients = _grouped(g, groups, (pixels,))
    images = _grouped(x, groups, x.shape[2:])
    height, width = g.shape[2:]
    stretches = _stretches(height, _rows_at_once(g, out[0].size))
    by_channels = _fewer_than_workers(len(x))
    added = [0] * workers()

    def channels(part: int, n: int, lo: int, hi: int) -> None:
        """Add channels lo to hi of image n, of each group."""
        total, keep = (sums[0], n > 0) if by_channels else (sums[part], added[part] % CHUNK > 0)
        for more in totals if added[part] and not keep else []:
            add_to(more[part], total)
        added[part] += 1
        for group in range(groups):
            image, given = images[n, group, lo:hi], gradients[n, group]
            target = total[group][:, lo * taps : hi * taps]
            if pointwise:
                product(target, given, image.reshape(-1, pixels).T, keep=keep)
                continue
            for first, last in stretches:
                matrix = _cut(columns[part], (hi - lo) * taps, (last - first) * width)
                gather(matrix, 0, image, last - first, width, *_below(shape, first))
                part_of = given[:, first * width : last * width]
                product(target, part_of, matrix.T, keep=keep or first > 0)

    fill(sums[0], 0)  # the result if there are no images
    for more in totals:
        fill(more, 0)
    parts = _by_channels(channels, len(x), out.shape[1], 2 * g.size * out[0].size)
    for more in totals:
        add_to(more[:parts], sums[:parts])
    add_parts(out, (totals or [sums])[0], parts)


def sums_scratch(x: Spec, filters: Sizes, groups: int) -> list[Spec]:
    """For every worker one set of filters; for many images also one in double precision."""
    depth = filters[1] * filters[2] * filters[3]
    sums = x.like((workers(), groups, filters[0] // groups, depth))
    return [sums, Spec(sums.shape, np.float64)][: sums_count(x.shape)]


def sums_count(images: Sizes) -> int:
    """How many arrays `sums_scratch` has."""
    return 2 if images[0] > CHUNK else 1
