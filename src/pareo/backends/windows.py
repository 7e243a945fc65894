"""Windows on images: which elements each position in a window covers (im2col and back)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def reach(offset: int, count: int, stride: int, before: int, length: int) -> tuple[slice, slice]:
    """The windows that have an element at `offset`, and those elements, along one axis.

    There are `count` windows, `stride` apart, on `length` elements padded by `before`.

    >>> reach(0, 3, 2, 1, 5)
    (slice(1, 3, None), slice(1, 4, 2))
    """
    shift = offset - before
    first = max(0, -(shift // stride))
    last = min(count, (length - 1 - shift) // stride + 1)
    if last <= first:
        return slice(0, 0), slice(0, 0)
    return slice(first, last), slice(
        first * stride + shift, (last - 1) * stride + shift + 1, stride
    )


def to_lines(lines: Array, x: Array, stride: int, padding: Any, dilation: int) -> None:
    """Unfold images (n, C, H, W) along their width, for each column of the window.

    lines is (n, C, kw, H + padding, OW), with zeros for the padding.
    """
    top, left, bottom, right = padding
    height, width = x.shape[2:]
    if top or bottom:
        lines[:, :, :, :top] = 0
        lines[:, :, :, top + height :] = 0
    inner = lines[:, :, :, top : top + height]
    if not (left or right):
        n, c, h, w = x.strides
        strides = (n, c, w * dilation, h, w * stride)
        np.copyto(inner, np.ndarray(inner.shape, x.dtype, buffer=x, strides=strides))
        return
    for place in range(lines.shape[2]):
        seen = inner[:, :, place]
        windows, elements = reach(place * dilation, seen.shape[3], stride, left, width)
        seen[:, :, :, : windows.start] = 0
        seen[:, :, :, windows.stop :] = 0
        seen[:, :, :, windows] = x[:, :, :, elements]


def to_rows(rows: Array, lines: Array, stride: int, dilation: int) -> None:
    """Unfold lines along their height, for each position in the window: (n, C, kh, kw, OH, OW)."""
    n, c, column, h, w = lines.strides
    strides = (n, c, h * dilation, column, h * stride, w)
    np.copyto(rows, np.ndarray(rows.shape, lines.dtype, buffer=lines, strides=strides))


def from_rows(lines: Array, rows: Array, stride: int, dilation: int) -> None:
    """Gradient of `to_rows`: each element is the sum over the positions that cover it."""
    count = rows.shape[4]
    if stride == 1:
        lines[:, :, :, :count] = rows[:, :, 0]
        lines[:, :, :, count:] = 0
    else:
        lines.fill(0)
    for place in range(1 if stride == 1 else 0, rows.shape[2]):
        first = place * dilation
        here = lines[:, :, :, first : first + (count - 1) * stride + 1 : stride]
        np.add(here, rows[:, :, place], out=here)


def from_lines(x: Array, lines: Array, stride: int, padding: Any, dilation: int) -> None:
    """Gradient of `to_lines`."""
    top, left = padding[:2]
    inner = lines[:, :, :, top : top + x.shape[2]]
    x.fill(0)
    for place in range(lines.shape[2]):
        seen = inner[:, :, place]
        windows, elements = reach(place * dilation, seen.shape[3], stride, left, x.shape[3])
        here = x[:, :, :, elements]
        np.add(here, seen[:, :, :, windows], out=here)
