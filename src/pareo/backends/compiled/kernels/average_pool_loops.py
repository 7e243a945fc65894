"""Single-threaded loops of average pooling, plane by plane.

The rows of a row of windows are added first, as whole rows. Their sum has zeros at both ends, so
that every tap of all windows is a range of it, without a test for the edges of the image.
"""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.runtime.jit import jit


@jit
def _add(total: Array, row: Array) -> None:
    for c in range(row.size):
        total[c] += row[c]


@jit
def _copy(total: Array, row: Array) -> None:
    for c in range(row.size):
        total[c] = row[c]


@jit
def _add_taps(total: Array, line: Array, stride: int) -> None:
    """Add every `stride`-th number of a line."""
    if stride == 1:
        for j in range(total.size):
            total[j] += line[j]
    elif stride == 2:
        for j in range(total.size):
            total[j] += line[2 * j]
    else:
        for j in range(total.size):
            total[j] += line[j * stride]


@jit
def _spread_taps(line: Array, share: Array, stride: int) -> None:
    """Add to every `stride`-th number of a line."""
    if stride == 1:
        for j in range(share.size):
            line[j] += share[j]
    elif stride == 2:
        for j in range(share.size):
            line[2 * j] += share[j]
    else:
        for j in range(share.size):
            line[j * stride] += share[j]


@jit
def _divide(out: Array, total: Array, columns: Array, rows: int) -> None:
    for j in range(out.size):
        out[j] = total[j] / (columns[j] * out.dtype.type(rows))


@jit
def _columns(counts: Array, width: int, kw: int, sw: int, left: int) -> None:
    """The columns of each window that are inside the image."""
    for j in range(counts.size):
        counts[j] = min(width, j * sw - left + kw) - max(0, j * sw - left)


@jit
def _reach(windows: int, width: int, kw: int, sw: int, left: int) -> int:
    """The length of a line that has all windows, and the whole row of the image."""
    return max((windows - 1) * sw + kw, left + width)


@jit
def average_pool(
    out: Array, x: Array, kh: int, kw: int, sh: int, sw: int, top: int, left: int
) -> None:
    """Planes (count, height, width); windows of kh x kw, whose first begins outside the image."""
    width, windows = x.shape[2], out.shape[2]
    line = np.zeros(_reach(windows, width, kw, sw, left), x.dtype)
    inside = line[left : left + width]
    total, columns = np.empty(windows, x.dtype), np.empty(windows, x.dtype)
    _columns(columns, width, kw, sw, left)
    for p in range(x.shape[0]):
        for i in range(out.shape[1]):
            first, last = max(0, i * sh - top), min(x.shape[1], i * sh - top + kh)
            _copy(inside, x[p, first])
            for u in range(first + 1, last):
                _add(inside, x[p, u])
            total[:] = 0
            for v in range(kw):
                _add_taps(total, line[v:], sw)
            _divide(out[p, i], total, columns, last - first)


@jit
def average_pool_gradient(
    out: Array, g: Array, kh: int, kw: int, sh: int, sw: int, top: int, left: int
) -> None:
    """The gradient of the planes, from that of the averages."""
    width, windows = out.shape[2], g.shape[2]
    line = np.zeros(_reach(windows, width, kw, sw, left), g.dtype)
    share, columns = np.empty(windows, g.dtype), np.empty(windows, g.dtype)
    _columns(columns, width, kw, sw, left)
    for p in range(out.shape[0]):
        done = 0  # rows that have been written
        for i in range(g.shape[1]):
            first, last = max(0, i * sh - top), min(out.shape[1], i * sh - top + kh)
            _divide(share, g[p, i], columns, last - first)
            line[:] = 0
            for v in range(kw):
                _spread_taps(line[v:], share, sw)
            for u in range(first, min(last, done)):
                _add(out[p, u], line[left : left + width])
            for u in range(done, first):
                out[p, u] = 0
            for u in range(max(first, done), last):
                _copy(out[p, u], line[left : left + width])
            done = max(done, last)
        for u in range(done, out.shape[1]):
            out[p, u] = 0
