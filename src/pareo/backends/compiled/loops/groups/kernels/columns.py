"""The windows of a single image as rows of a matrix, for convolutions with few places.

With few places in a row, vectors of pixels are mostly empty. As rows of a matrix the windows can be
multiplied by the filters where these are: all vectors are elements of filters. A row has the pixels
of all channels under one window, in the order of a filter's elements. The image is copied with its
padding first, so that all windows have their pixels at the same offsets.
"""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.kernels.gradient_sums import clear
from pareo.backends.compiled.runtime.jit import jit


@jit
def offsets(channels: int, high: int, wide: int, kh: int, kw: int, dh: int, dw: int) -> Array:
    """Where the pixels under a window are in a padded image, relative to its first."""
    found = np.empty(channels * kh * kw, np.int64)
    for c in range(channels):
        for u in range(kh):
            for v in range(kw):
                found[(c * kh + u) * kw + v] = (c * high + u * dh) * wide + v * dw
    return found


@jit
def _pad(padded: Array, x: Array, top: int, left: int) -> None:
    """Copy an image into a padded one, which may lack rows and columns that no window covers."""
    channels, high, wide = padded.shape
    to, of = padded.reshape(padded.size), x.reshape(x.size)
    if top > 0 or left > 0 or high > x.shape[1] or wide > x.shape[2]:
        clear(to)
    count = min(x.shape[2], wide - left)
    for c in range(channels):
        for line in range(min(x.shape[1], high - top)):
            into, given = (
                (c * high + line + top) * wide + left,
                (c * x.shape[1] + line) * x.shape[2],
            )
            for j in range(count):
                to[into + j] = of[given + j]


@jit
def gather(
    rows: Array, x: Array, padded: Array, within: Array, top: int, left: int, wide: int, sh: int,
    sw: int,
) -> None:  # fmt: skip
    """Each row = the pixels of x (channels, high, wide) under a window, 0 outside of the image.

    `within` are `offsets`; `wide` is the number of places in a row.
    """
    _pad(padded, x, top, left)
    pixels = padded.reshape(padded.size)
    for place in range(rows.shape[0]):
        start = place // wide * sh * padded.shape[2] + place % wide * sw
        row = rows[place]
        for k in range(row.size):
            row[k] = pixels[start + within[k]]


@jit
def scatter(
    x: Array, rows: Array, padded: Array, within: Array, top: int, left: int, wide: int, sh: int,
    sw: int,
) -> None:  # fmt: skip
    """x = for each pixel, the sum of the elements of rows that are of this pixel."""
    pixels, to = padded.reshape(padded.size), x.reshape(x.size)
    clear(pixels)
    for place in range(rows.shape[0]):
        start = place // wide * sh * padded.shape[2] + place % wide * sw
        row = rows[place]
        for k in range(row.size):
            pixels[start + within[k]] += row[k]
    clear(to)
    channels, high, width = padded.shape
    count = min(x.shape[2], width - left)
    for c in range(channels):
        for line in range(min(x.shape[1], high - top)):
            into, given = (
                (c * x.shape[1] + line) * x.shape[2],
                (c * high + line + top) * width + left,
            )
            for j in range(count):
                to[into + j] = pixels[given + j]


@jit
def from_rows(out: Array, rows: Array, bias: Array) -> None:
    """out = rows transposed, plus a bias for each row of out unless it is empty."""
    for f in range(out.shape[0]):
        start = bias[f] if bias.size else out.dtype.type(0)
        for p in range(out.shape[1]):
            out[f, p] = rows[p, f] + start
