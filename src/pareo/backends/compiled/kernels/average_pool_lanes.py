"""Average pooling of as many planes at once as a register has lanes. float32 only.

A vector holds one pixel of each plane, as in `max_pool_lanes`, so every loop is over whole vectors,
however short a row is. Planes lie in a buffer with zeros around them. For each row of windows, rows
are added first, then columns of their sum.
"""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.kernels.activations import NONE
from pareo.backends.compiled.kernels.channels_last import load, offsets, store
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.lanes import LANES

MOST = 1 << 17  # floats of a buffer, which stays in the second cache


def buffer_sizes(
    x: tuple[int, ...], pooled: tuple[int, ...], size: tuple[int, ...], stride: tuple[int, ...],
    padding: tuple[int, ...],
) -> tuple[int, int]:  # fmt: skip
    """Rows and columns of pixels that have the image, and all windows.

    >>> buffer_sizes((1, 1, 9, 9), (1, 1, 5, 5), (3, 3), (2, 2), (1, 1, 1, 1))
    (11, 11)
    """
    high, wide = (
        max(before + x[i], (pooled[i] - 1) * step + taps)
        for i, before, step, taps in zip((2, 3), padding[:2], stride, size, strict=True)
    )
    return high, wide


@jit
def _add_rows(out: Array, given: Array, count: int, step: int) -> None:
    """out = the sum of `count` stretches of `given` as long, `step` apart."""
    size = out.size
    first = given[:size]
    if count >= 3:
        second, third = given[step : step + size], given[2 * step : 2 * step + size]
        for q in range(size):
            out[q] = first[q] + second[q] + third[q]
    else:
        for q in range(size):
            out[q] = first[q]
    for u in range(3 if count >= 3 else 1, count):
        more = given[u * step : u * step + size]
        for q in range(size):
            out[q] += more[q]


@jit
def _add_columns(out: Array, given: Array, count: int, stride: int) -> None:
    """out = for each vector the sum of `count` vectors of `given`, side by side."""
    if stride == 1:
        _add_rows(out, given, count, LANES)
        return
    for j in range(out.size // LANES):
        for lane in range(LANES):
            out[j * LANES + lane] = given[j * stride * LANES + lane]
        for v in range(1, count):
            for lane in range(LANES):
                out[j * LANES + lane] += given[(j * stride + v) * LANES + lane]


@jit
def _spread_columns(out: Array, given: Array, count: int, stride: int) -> None:
    """The reverse: each vector of `given` is added to `count` vectors of out, from zero on."""
    for q in range(out.size):
        out[q] = 0
    for v in range(count):
        if stride == 1:
            line = out[v * LANES : v * LANES + given.size]
            for q in range(given.size):
                line[q] += given[q]
            continue
        for j in range(given.size // LANES):
            for lane in range(LANES):
                out[(j * stride + v) * LANES + lane] += given[j * LANES + lane]


@jit
def _inside(i: int, stride: int, before: int, taps: int, size: int) -> int:
    """How many rows or columns of a window are inside the image."""
    return min(size, i * stride - before + taps) - max(0, i * stride - before)


@jit
def _columns(windows: int, stride: int, before: int, taps: int, size: int) -> Array:
    """The columns of each window that are inside the image, for all lanes."""
    made = np.empty(windows * LANES, np.float32)
    for j in range(windows):
        made[j * LANES : (j + 1) * LANES] = _inside(j, stride, before, taps, size)
    return made


@jit
def average_pool(
    out: Array, buffer: Array, x: Array, rows: int, padded: int, kh: int, kw: int, sh: int,
    sw: int, top: int, left: int, lo: int, hi: int,
) -> None:  # fmt: skip
    """Groups lo to hi of planes (count, height, width)."""
    height, width, high, wide = x.shape[1], x.shape[2], out.shape[1], out.shape[2]
    line, row = padded * LANES, wide * LANES
    given, made = offsets(height, width, padded, LANES), offsets(high, wide, wide, LANES)
    columns, nothing = _columns(wide, sw, left, kw, width), np.zeros(LANES, np.float32)
    down, results = np.empty(line, np.float32), np.empty(high * row, np.float32)
    for p in range(lo * LANES, min(hi * LANES, x.shape[0]), LANES):
        own = min(LANES, x.shape[0] - p)
        load(buffer, LANES, padded, rows, x, p, own, -top, left, given)
        for i in range(high):
            _add_rows(down, buffer[i * sh * line :], kh, line)
            total = results[i * row : (i + 1) * row]
            _add_columns(total, down, kw, sw)
            inside = np.float32(_inside(i, sh, top, kh, height))
            for q in range(row):
                total[q] /= columns[q] * inside
        store(out, p, own, 0, high, results, LANES, nothing, NONE, made)


@jit
def average_pool_gradient(
    out: Array, buffer: Array, g: Array, rows: int, padded: int, kh: int, kw: int, sh: int,
    sw: int, top: int, left: int, lo: int, hi: int,
) -> None:  # fmt: skip
    """The gradient of the planes, from that of the averages."""
    height, width, high, wide = out.shape[1], out.shape[2], g.shape[1], g.shape[2]
    line, row = padded * LANES, wide * LANES
    given, made = offsets(high, wide, wide, LANES), offsets(height, width, padded, LANES)
    columns, nothing = _columns(wide, sw, left, kw, width), np.zeros(LANES, np.float32)
    across, shares = np.empty(line, np.float32), np.empty(high * row, np.float32)
    for p in range(lo * LANES, min(hi * LANES, out.shape[0]), LANES):
        own = min(LANES, out.shape[0] - p)
        load(shares, LANES, wide, high, g, p, own, 0, 0, given)
        buffer[: rows * line] = 0
        for i in range(high):
            share = shares[i * row : (i + 1) * row]
            inside = np.float32(_inside(i, sh, top, kh, height))
            for q in range(row):
                share[q] /= columns[q] * inside
            _spread_columns(across, share, kw, sw)
            for u in range(kh):
                into = buffer[(i * sh + u) * line : (i * sh + u + 1) * line]
                for q in range(line):
                    into[q] += across[q]
        interior = buffer[(top * padded + left) * LANES :]
        store(out, p, own, 0, height, interior, LANES, nothing, NONE, made)
