"""Convolution as a matrix product: every window of an image becomes a column; BLAS does the rest.

One image at a time, so that its columns are still in the cache when they are multiplied; images are
split over the threads, each with its own room for columns. Where there are fewer images than
threads, each is split itself: forward by rows of the result, backward by channels.
"""

from functools import partial
from typing import Any

import numpy as np

from pareo.backends import blas
from pareo.backends.compiled.kernels.linear import finish_planes
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split_numbered, workers
from pareo.backends.sums import CHUNK, gathered
from pareo.spec import Spec


@jit
def reach(size: int, image: int, step: int, shift: int) -> Any:
    """The outputs i in range(size) for which i * step + shift lies in the image: first and end."""
    first = max(0, -(shift // step)) if shift < 0 else 0
    end = min(size, max(0, (image - 1 - shift) // step + 1)) if image > shift else 0
    return min(first, end), end


@jit
def _gather(
    columns: Any, x: Any, height: int, width: int, kh: int, kw: int,
    sh: int, sw: int, top: int, left: int, dh: int, dw: int,
) -> None:  # fmt: skip
    """columns[(c, u, v), (i, j)] = the pixel under tap (u, v) of window (i, j), 0 outside."""
    row = 0
    for c in range(x.shape[0]):
        for u in range(kh):
            for v in range(kw):
                line = columns[row]
                row += 1
                low, high = reach(height, x.shape[1], sh, u * dh - top)
                start, stop = reach(width, x.shape[2], sw, v * dw - left)
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
    out: Any, columns: Any, height: int, width: int, kh: int, kw: int,
    sh: int, sw: int, top: int, left: int, dh: int, dw: int,
) -> None:  # fmt: skip
    """The way back of `_gather`: every column's element is added to the pixel that it came from."""
    out[:] = 0
    row = 0
    for c in range(out.shape[0]):
        for u in range(kh):
            for v in range(kw):
                line = columns[row]
                row += 1
                low, high = reach(height, out.shape[1], sh, u * dh - top)
                start, stop = reach(width, out.shape[2], sw, v * dw - left)
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


def _is_pointwise(window: Any, stride: Any, padding: Any) -> bool:
    """Whether an image already is its own matrix of columns."""
    return tuple(window) == (1, 1) == tuple(stride) and not any(padding)


def room(x: Spec, g: Spec, window: Any, stride: Any, padding: Any, groups: int) -> list[Spec]:
    """Room for the columns of one image and one group, for every worker."""
    if _is_pointwise(window, stride, padding):
        return [x.like((0,))]
    depth = x.shape[1] // groups * window[0] * window[1]
    return [x.like((workers(), depth, g.shape[2] * g.shape[3]))]


def _shape(window: Any, stride: Any, padding: Any, dilation: Any) -> tuple[int, ...]:
    return (*window, *stride, *padding[:2], *dilation)


def _grouped(a: Any, groups: int, plane: tuple[int, ...]) -> Any:
    """Images (N, C, H, W) as (N, groups, C / groups, *plane); no size is left to be worked out,
    because a batch may be empty."""
    return a.reshape(a.shape[0], groups, a.shape[1] // groups, *plane)


def _few(images: int) -> bool:
    """Whether the images alone would not keep all workers busy."""
    return images < workers()


def _of_image(work: Any, n: int, part: int, lo: int, hi: int) -> None:
    work(part, n, lo, hi)


def forward(
    out: Any, x: Any, w: Any, b: Any, activation: int,
    stride: Any, padding: Any, dilation: Any, groups: int, columns: Any,
) -> None:  # fmt: skip
    """out = activation(conv(x, w) + b), or the convolution alone where b is None."""
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
                room = columns[part].reshape(-1)[: filters.shape[2] * (hi - lo) * width]
                matrix = room.reshape(filters.shape[2], (hi - lo) * width)
                _gather(
                    matrix, images[n, group], hi - lo, width, *window, *stride,
                    top - lo * stride[0], left, *dilation,
                )  # fmt: skip
            np.matmul(filters[group], matrix, out=planes[n, group][:, pixels])
        if b is not None:
            whole = out[n : n + 1].reshape(1, out.shape[1], height * width)[:, :, pixels]
            finish_planes(whole, whole, b, activation)

    blas.threads(1)
    if _few(len(x)):
        for n in range(len(x)):
            split_numbered(partial(_of_image, rows, n), height)
        return

    def work(part: int, lo: int, hi: int) -> None:
        for n in range(lo, hi):
            rows(part, n, 0, height)

    split_numbered(work, len(x))


def input_gradient(
    out: Any, g: Any, w: Any,
    stride: Any, padding: Any, dilation: Any, groups: int, columns: Any,
) -> None:  # fmt: skip
    """out = the gradient of the images, from that of the output."""
    window = w.shape[2:]
    taps = window[0] * window[1]
    pixels = g.shape[2] * g.shape[3]
    filters = w.reshape(groups, w.shape[0] // groups, w[0].size)
    errors = _grouped(g, groups, (pixels,))
    images = _grouped(out, groups, out.shape[2:])
    shape = _shape(window, stride, padding, dilation)
    pointwise = _is_pointwise(window, stride, padding)

    def channels(part: int, n: int, lo: int, hi: int) -> None:
        """Channels lo to hi of image n, of each group."""
        for group in range(groups):
            image = images[n, group, lo:hi]
            matrix = image.reshape(-1, pixels) if pointwise else columns[part][: (hi - lo) * taps]
            np.matmul(filters[group][:, lo * taps : hi * taps].T, errors[n, group], out=matrix)
            if not pointwise:
                _scatter(image, matrix, *g.shape[2:], *shape)

    _by_channels(channels, len(g), w.shape[1])


def _by_channels(work: Any, images: int, channels: int) -> int:
    """Run work(part, image, first channel, last): by images, or by channels where they are few."""
    blas.threads(1)
    if _few(images):
        for n in range(images):
            split_numbered(partial(_of_image, work, n), channels)
        return 1

    def over(part: int, lo: int, hi: int) -> None:
        for n in range(lo, hi):
            work(part, n, 0, channels)

    return split_numbered(over, images)


def weight_gradient(
    out: Any, x: Any, g: Any,
    stride: Any, padding: Any, dilation: Any, groups: int, columns: Any, sums: Any,
    totals: list[Any],
) -> None:  # fmt: skip
    """out = the gradient of the filters; sums and totals are from `sums_room`."""
    window = out.shape[2:]
    taps = window[0] * window[1]
    pixels = g.shape[2] * g.shape[3]
    errors = _grouped(g, groups, (pixels,))
    images = _grouped(x, groups, x.shape[2:])
    shape = _shape(window, stride, padding, dilation)
    pointwise = _is_pointwise(window, stride, padding)
    few = _few(len(x))
    added = [0] * workers()

    def channels(part: int, n: int, lo: int, hi: int) -> None:
        """Add channels lo to hi of image n, of each group."""
        total, keep = (sums[0], n > 0) if few else (sums[part], added[part] % CHUNK > 0)
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
            blas.add_product(target, errors[n, group], matrix.T, keep=keep)

    sums[0] = 0  # what remains where there are no images
    for more in totals:
        more[...] = 0
    parts = _by_channels(channels, len(x), out.shape[1])
    for more in totals:
        np.add(more[:parts], sums[:parts], out=more[:parts])
    out.reshape(sums.shape[1:])[...] = gathered((totals or [sums])[0], parts)


def sums_room(x: Spec, filters: tuple[int, ...], groups: int) -> list[Spec]:
    """Room for one set of filters for every worker; for many images, in double precision too."""
    depth = filters[1] * filters[2] * filters[3]
    sums = x.like((workers(), groups, filters[0] // groups, depth))
    return [sums, Spec(sums.shape, np.float64)] if x.shape[0] > CHUNK else [sums]
