"""Where windows fall on images: for one place in the window, which elements, of which windows."""

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


def pad(out: Array, x: Array, padding: Any) -> None:
    """Images (n, C, H, W) with zeros around them."""
    top, left = padding[:2]
    height, width = x.shape[2:]
    out[:, :, :top] = 0
    out[:, :, top + height :] = 0
    out[:, :, top : top + height, :left] = 0
    out[:, :, top : top + height, left + width :] = 0
    out[:, :, top : top + height, left : left + width] = x


def windows(x: Array, size: Any, sizes: Any, stride: Any, dilation: Any) -> Array:
    """A view (n, C, kh, kw, OH, OW) of contiguous images: what each place of the window sees."""
    rows, columns = x.strides[2:]
    return np.ndarray(
        (*x.shape[:2], *size, *sizes),
        x.dtype,
        buffer=x,
        strides=(
            *x.strides[:2],
            rows * dilation[0],
            columns * dilation[1],
            rows * stride[0],
            columns * stride[1],
        ),
    )
