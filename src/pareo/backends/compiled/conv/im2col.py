"""Convolution as a matrix product: every window of an image becomes a column of a matrix.

One image is done at a time, so that its columns are still in the cache when BLAS multiplies them.
Images are split over the threads, each with its own memory for columns. If there are fewer images
than threads, each image is split: forward by rows of the result, backward by channels.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from pareo.array import Array
from pareo.backends import blas
from pareo.backends.compiled.backend import Sizes
from pareo.backends.compiled.kernels.linear import bias_activation_planes
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split_numbered, workers
from pareo.backends.sums import CHUNK, gathered
from pareo.spec import Spec


@jit
def valid_range(size: int, image: int, step: int, shift: int) -> tuple[int, int]:
    """The range of outputs i below `size` for which i * step + shift is inside the image."""
    first = max(0, -(shift // step)) if shift < 0 else 0
    end = min(size, max(0, (image - 1 - shift) // step + 1)) if image > shift else 0
    return min(first, end), end


@jit
def _gather(
    columns: Array, x: Array, height: int, width: int, kh: int, kw: int,
    sh: int, sw: int, top: int, left: int, dh: int, dw: int,
) -> None:  # fmt: skip
    """columns[(c, u, v), (i, j)] = the pixel under tap (u, v) of window (i, j), 0 outside."""
    row = 0
    for c in range(x.shape[0]):
        for u in range(kh):
            for v in range(kw):
                line = columns[row]
                row += 1
                low, high = valid_range(height, x.shape[1], sh, u * dh - top)
                start, stop = valid_range(width, x.shape[2], sw, v * dw - left)
                line[: low * width] = 0
                line[high * width :] = 0
                for i in range(low, high):
                    target = line[i * width : (i + 1) * width]
                    source = x[c, i * sh + u * dh - top]
                    target[:start] = 0
                    target[stop:] = 0
                    shift = v * dw - left
                    if sw == 1:
                        for j in range(start, stop):
                            target[j] = source[j + shift]
                    else:
                        for j in range(start, stop):
                            target[j] = source[j * sw + shift]


@jit
def _scatter(
    out: Array, columns: Array, height: int, width: int, kh: int, kw: int,
    sh: int, sw: int, top: int, left: int, dh: int, dw: int,
) -> None:  # fmt: skip
    """The adjoint of `_gather`: add every element of the columns to the pixel it came from."""
    out[:] = 0
    row = 0
    for c in range(out.shape[0]):
        for u in range(kh):
            for v in range(kw):
                line = columns[row]
                row += 1
                low, high = valid_range(height, out.shape[1], sh, u * dh - top)
                start, stop = valid_range(width, out.shape[2], sw, v * dw - left)
                for i in range(low, high):
                    source = line[i * width : (i + 1) * width]
                    target = out[c, i * sh + u * dh - top]
                    shift = v * dw - left
                    if sw == 1:
                        for j in range(start, stop):
                            target[j + shift] += source[j]
                    else:
                        for j in range(start, stop):
                            target[j * sw + shift] += source[j]


def _is_pointwise(window: Sizes, stride: Sizes, padding: Sizes) -> bool:
    """Whether an image is already its own matrix of columns."""
    return tuple(window) == (1, 1) == tuple(stride) and not any(padding)


def scratch(
    x: Spec, g: Spec, window: Sizes, stride: Sizes, padding: Sizes, groups: int
) -> list[Spec]:
    """Memory for the columns of one image and one group, for every worker."""
    if _is_pointwise(window, stride, padding):
        return [x.like((0,))]
    depth = x.shape[1] // groups * window[0] * window[1]
    return [x.like((workers(), depth, g.shape[2] * g.shape[3]))]


def _shape(window: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> Sizes:
    return (*window, *stride, *padding[:2], *dilation)


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
    columns: Array,
) -> None:  # fmt: skip
    """out = activation(conv(x, w) + b); without a bias b is None."""
    window = w.shape[2:]
    height, width = out.shape[2:]
    filters = w.reshape(groups, w.shape[0] // groups, w[0].size)
    planes = _grouped(out, groups, (height * width,))
    images = _grouped(x, groups, x.shape[2:])
    top, left = padding[:2]
    pointwise = _is_pointwise(window, stride, padding)

    def rows(part: int, n: int, lo: int, hi: int) -> None:
        """Rows lo to hi of image n's result."""
        pixels = slice(lo * width, hi * width)
        for group in range(groups):
            if pointwise:
                matrix = images[n, group].reshape(-1, height * width)[:, pixels]
            else:
                memory = columns[part].reshape(-1)[: filters.shape[2] * (hi - lo) * width]
                matrix = memory.reshape(filters.shape[2], (hi - lo) * width)
                _gather(
                    matrix, images[n, group], hi - lo, width, *window, *stride,
                    top - lo * stride[0], left, *dilation,
                )  # fmt: skip
            np.matmul(filters[group], matrix, out=planes[n, group][:, pixels])
        if b is not None:
            whole = out[n : n + 1].reshape(1, out.shape[1], height * width)[:, :, pixels]
            bias_activation_planes(whole, whole, b, activation)

    blas.threads(1)
    if _fewer_than_workers(len(x)):
        for n in range(len(x)):
            split_numbered(partial(_of_image, rows, n), height)
        return

    def work(part: int, lo: int, hi: int) -> None:
        for n in range(lo, hi):
            rows(part, n, 0, height)

    split_numbered(work, len(x))


def input_gradient(
    out: Array, g: Array, w: Array, stride: Sizes,
    padding: Sizes, dilation: Sizes, groups: int, columns: Array,
) -> None:  # fmt: skip
    """out = the gradient of the images, from that of the outputs."""
    window = w.shape[2:]
    taps = window[0] * window[1]
    pixels = g.shape[2] * g.shape[3]
    filters = w.reshape(groups, w.shape[0] // groups, w[0].size)
    gradients = _grouped(g, groups, (pixels,))
    images = _grouped(out, groups, out.shape[2:])
    shape = _shape(window, stride, padding, dilation)
    pointwise = _is_pointwise(window, stride, padding)

    def channels(part: int, n: int, lo: int, hi: int) -> None:
        """Channels lo to hi of image n, of each group."""
        for group in range(groups):
            image = images[n, group, lo:hi]
            matrix = image.reshape(-1, pixels) if pointwise else columns[part][: (hi - lo) * taps]
            np.matmul(filters[group][:, lo * taps : hi * taps].T, gradients[n, group], out=matrix)
            if not pointwise:
                _scatter(image, matrix, *g.shape[2:], *shape)

    _by_channels(channels, len(g), w.shape[1])


def _by_channels(work: Callable[[int, int, int, int], None], images: int, channels: int) -> int:
    """Run work(part, image, first channel, last), split by images, or by channels if few."""
    blas.threads(1)
    if _fewer_than_workers(images):
        for n in range(images):
            split_numbered(partial(_of_image, work, n), channels)
        return 1

    def over(part: int, lo: int, hi: int) -> None:
        for n in range(lo, hi):
            work(part, n, 0, channels)

    return split_numbered(over, images)


def weight_gradient(
    out: Array, x: Array, g: Array, stride: Sizes,
    padding: Sizes, dilation: Sizes, groups: int, columns: Array,
    sums: Array, totals: list[Array],
) -> None:  # fmt: skip
    """out = the gradient of the filters; sums and totals are from `sums_scratch`."""
    window = out.shape[2:]
    taps = window[0] * window[1]
    pixels = g.shape[2] * g.shape[3]
    gradients = _grouped(g, groups, (pixels,))
    images = _grouped(x, groups, x.shape[2:])
    shape = _shape(window, stride, padding, dilation)
    pointwise = _is_pointwise(window, stride, padding)
    by_channels = _fewer_than_workers(len(x))
    added = [0] * workers()

    def channels(part: int, n: int, lo: int, hi: int) -> None:
        """Add channels lo to hi of image n, of each group."""
        total, keep = (sums[0], n > 0) if by_channels else (sums[part], added[part] % CHUNK > 0)
        for more in totals if added[part] and not keep else []:
            np.add(more[part], total, out=more[part])
        added[part] += 1
        for group in range(groups):
            image = images[n, group, lo:hi]
            if pointwise:
                matrix = image.reshape(-1, pixels)
            else:
                matrix = columns[part][: (hi - lo) * taps]
                _gather(matrix, image, *g.shape[2:], *shape)
            target = total[group][:, lo * taps : hi * taps]
            blas.add_product(target, gradients[n, group], matrix.T, keep=keep)

    sums[0] = 0  # the result if there are no images
    for more in totals:
        more[...] = 0
    parts = _by_channels(channels, len(x), out.shape[1])
    for more in totals:
        np.add(more[:parts], sums[:parts], out=more[:parts])
    out.reshape(sums.shape[1:])[...] = gathered((totals or [sums])[0], parts)


def sums_scratch(x: Spec, filters: Sizes, groups: int) -> list[Spec]:
    """For every worker one set of filters; for many images also one in double precision."""
    depth = filters[1] * filters[2] * filters[3]
    sums = x.like((workers(), groups, filters[0] // groups, depth))
    return [sums, Spec(sums.shape, np.float64)] if x.shape[0] > CHUNK else [sums]
