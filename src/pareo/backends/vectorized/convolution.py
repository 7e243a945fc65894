"""Convolution as matrix products: windows become columns (im2col), some images at a time."""

from typing import Any

import numpy as np

from pareo.backends import blas
from pareo.backends.vectorized.table import Array, backend
from pareo.backends.windows import pad, reach, windows
from pareo.device import current
from pareo.spec import Spec

COLUMNS = 16 << 20  # bytes of columns at a time: they should still be in the cache for the product


def _some(images: int, column_bytes: int) -> int:
    return max(1, min(images, COLUMNS // max(column_bytes, 1)))


def _padded(x: Spec, some: int, padding: Any) -> list[Spec]:
    if not any(padding):
        return []
    height, width = x.shape[2] + padding[0] + padding[2], x.shape[3] + padding[1] + padding[3]
    return [x.like((some, x.shape[1], height, width))]


def _forward(out: Spec, x: Spec, w: Spec, padding: Any, groups: int, **_: Any) -> list[Spec]:
    places = w.shape[1] * w.shape[2] * w.shape[3]
    pixels = out.shape[2] * out.shape[3]
    some = _some(x.shape[0], groups * places * pixels * x.dtype.itemsize)
    return [x.like((some, groups, places, pixels)), *_padded(x, some, padding)]


def _fill(columns: Array, x: Array, size: Any, sizes: Any, how: Any, padded: Any) -> None:
    stride, padding, dilation = how
    if padded:
        pad(padded[0][: len(x)], x, padding)
        x = padded[0][: len(x)]
    seen = windows(x, size, sizes, stride, dilation)
    np.copyto(columns.reshape(seen.shape), seen)


@backend.kernel(strided=False, scratch=_forward)
def conv(
    out: Array,
    x: Array,
    w: Array,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    scratch: tuple[Array, ...],
) -> None:
    blas.threads(current().threads)
    columns, *padded = scratch
    filters = w.reshape(groups, len(w) // groups, columns.shape[2])
    for start in range(0, len(x), len(columns)):
        images = x[start : start + len(columns)]
        seen = columns[: len(images)]
        _fill(seen, images, w.shape[2:], out.shape[2:], (stride, padding, dilation), padded)
        result = out[start : start + len(images)]
        np.matmul(filters, seen, out=result.reshape(len(images), *filters.shape[:2], -1))


def _to_columns(out: Spec, g: Spec, w: Spec, groups: int, **_: Any) -> list[Spec]:
    places = w.shape[1] * w.shape[2] * w.shape[3]
    pixels = g.shape[2] * g.shape[3]
    some = _some(g.shape[0], groups * places * pixels * g.dtype.itemsize)
    return [g.like((some, groups, places, pixels))]


@backend.kernel(strided=False, scratch=_to_columns)
def conv_input_gradient(
    out: Array,
    g: Array,
    w: Array,
    size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    scratch: tuple[Array],
) -> None:
    blas.threads(current().threads)
    (columns,) = scratch
    filters = w.reshape(groups, len(w) // groups, columns.shape[2]).transpose(0, 2, 1)
    out.fill(0)
    for start in range(0, len(g), len(columns)):
        errors = g[start : start + len(columns)]
        seen = columns[: len(errors)]
        np.matmul(filters, errors.reshape(len(errors), groups, filters.shape[2], -1), out=seen)
        sums = out[start : start + len(errors)]
        places = seen.reshape(*sums.shape[:2], *w.shape[2:], *g.shape[2:])
        _add_columns(sums, places, stride, padding, dilation)


def _add_columns(out: Array, places: Array, stride: Any, padding: Any, dilation: Any) -> None:
    """Adds what each place of the window got (n, C, kh, kw, OH, OW) to where it lies (col2im)."""
    height, width = places.shape[4:]
    for i in range(places.shape[2]):
        of_rows, at_rows = reach(i * dilation[0], height, stride[0], padding[0], out.shape[2])
        for j in range(places.shape[3]):
            of, at = reach(j * dilation[1], width, stride[1], padding[1], out.shape[3])
            here = out[:, :, at_rows, at]
            np.add(here, places[:, :, i, j, of_rows, of], out=here)


def _weights(out: Spec, x: Spec, g: Spec, padding: Any, groups: int, **_: Any) -> list[Spec]:
    columns = _forward(g, x, out, padding, groups)
    return [columns[0], g.like((groups, len_of(g) // groups, columns[0].shape[2])), *columns[1:]]


def len_of(g: Spec) -> int:
    return g.shape[1]


@backend.kernel(strided=False, scratch=_weights)
def conv_weight_gradient(
    out: Array,
    x: Array,
    g: Array,
    size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    scratch: tuple[Array, ...],
) -> None:
    blas.threads(current().threads)
    columns, product, *padded = scratch
    filters = out.reshape(product.shape)
    filters.fill(0)
    for start in range(0, len(x), len(columns)):
        images = x[start : start + len(columns)]
        seen = columns[: len(images)]
        _fill(seen, images, size, g.shape[2:], (stride, padding, dilation), padded)
        errors = g[start : start + len(images)].reshape(len(images), *product.shape[:2], -1)
        for error, column in zip(errors, seen, strict=True):
            np.matmul(error, column.transpose(0, 2, 1), out=product)
            np.add(filters, product, out=filters)
