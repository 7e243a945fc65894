"""Convolution as a matrix product: every window of an image becomes a column; BLAS does the rest.

One image at a time, so that its columns are still in the cache when they are multiplied; images are
split over the threads, each with its own room for columns.
"""

from typing import Any

import numpy as np

from pareo.backends import blas
from pareo.backends.compiled.jit import jit
from pareo.backends.compiled.linear import finish_planes
from pareo.backends.pool import split_numbered, workers
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


def _over_images(work: Any, images: int) -> int:
    """Images split over the workers; where one works alone, BLAS has all the threads."""
    blas.threads(workers() if images < 2 else 1)
    return split_numbered(work, images)


def forward(
    out: Any, x: Any, w: Any, b: Any, activation: int,
    stride: Any, padding: Any, dilation: Any, groups: int, columns: Any,
) -> None:  # fmt: skip
    """out = activation(conv(x, w) + b), or the convolution alone where b is None."""
    window = w.shape[2:]
    pixels = out.shape[2] * out.shape[3]
    filters = w.reshape(groups, w.shape[0] // groups, w[0].size)
    planes = _grouped(out, groups, (pixels,))
    images = _grouped(x, groups, x.shape[2:])
    shape = _shape(window, stride, padding, dilation)
    pointwise = _is_pointwise(window, stride, padding)

    def work(part: int, lo: int, hi: int) -> None:
        for n in range(lo, hi):
            for group in range(groups):
                if pointwise:
                    matrix = images[n, group].reshape(-1, pixels)
                else:
                    matrix = columns[part]
                    _gather(matrix, images[n, group], *out.shape[2:], *shape)
                np.matmul(filters[group], matrix, out=planes[n, group])
            if b is not None:
                whole = out[n : n + 1].reshape(1, out.shape[1], pixels)
                finish_planes(whole, whole, b, activation)

    _over_images(work, x.shape[0])


def input_gradient(
    out: Any, g: Any, w: Any,
    stride: Any, padding: Any, dilation: Any, groups: int, columns: Any,
) -> None:  # fmt: skip
    """out = the gradient of the images, from that of the output."""
    window = w.shape[2:]
    pixels = g.shape[2] * g.shape[3]
    filters = w.reshape(groups, w.shape[0] // groups, w[0].size)
    errors = _grouped(g, groups, (pixels,))
    images = _grouped(out, groups, out.shape[2:])
    shape = _shape(window, stride, padding, dilation)
    pointwise = _is_pointwise(window, stride, padding)

    def work(part: int, lo: int, hi: int) -> None:
        for n in range(lo, hi):
            for group in range(groups):
                image = images[n, group]
                matrix = image.reshape(-1, pixels) if pointwise else columns[part]
                np.matmul(filters[group].T, errors[n, group], out=matrix)
                if not pointwise:
                    _scatter(image, matrix, *g.shape[2:], *shape)

    _over_images(work, g.shape[0])


def weight_gradient(
    out: Any, x: Any, g: Any,
    stride: Any, padding: Any, dilation: Any, groups: int, columns: Any, sums: Any,
) -> None:  # fmt: skip
    """out = the gradient of the filters; sums has room for them for each worker."""
    window = out.shape[2:]
    pixels = g.shape[2] * g.shape[3]
    errors = _grouped(g, groups, (pixels,))
    images = _grouped(x, groups, x.shape[2:])
    shape = _shape(window, stride, padding, dilation)
    pointwise = _is_pointwise(window, stride, padding)

    def work(part: int, lo: int, hi: int) -> None:
        total = sums[part]
        if lo == hi:
            total[...] = 0
        for n in range(lo, hi):
            for group in range(groups):
                if pointwise:
                    matrix = images[n, group].reshape(-1, pixels)
                else:
                    matrix = columns[part]
                    _gather(matrix, images[n, group], *g.shape[2:], *shape)
                blas.add_product(total[group], errors[n, group], matrix.T, keep=n > lo)

    parts = _over_images(work, x.shape[0])
    np.sum(sums[:parts], axis=0, out=out.reshape(sums.shape[1:]))


def sums_room(x: Spec, filters: tuple[int, ...], groups: int) -> Spec:
    """Room for one set of filters for every worker."""
    depth = filters[1] * filters[2] * filters[3]
    return x.like((workers(), groups, filters[0] // groups, depth))
