"""Single-threaded loops of max pooling, plane by plane."""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.runtime.jit import jit

# A plane is first copied into a layout in which every tap of all its windows is one contiguous
# range. It gets edges of minus infinity and is split by the strides: for stride 2, into four planes
# of the even and odd rows and columns. A row of each has `pitch` elements, and window (i, j) is
# number i * pitch + j; between the rows of windows are some that no result is taken from. All
# indices are unsigned, because the compiler vectorises no loop whose index might be negative.
U = np.uint64

# The maximum of two numbers, where NaN is larger than all, is `b if b > a or b != b else a`. It is
# written out in the loops below, because they are not vectorised otherwise.


@jit
def _lay_out(
    laid: Array, x: Array, p: int, sh: int, sw: int, top: int, left: int, rows: int, pitch: int
) -> None:
    """Copy a plane into its layout; the edges are left as they are."""
    for row in range(x.shape[1]):
        at, phase = divmod(row + top, sh)
        line = (phase * sw * rows + at) * pitch
        if sw == 1:
            start = U(line + left)
            for q in range(U(x.shape[2])):
                laid[start + q] = x[p, row, q]
        elif sw == 2 and left == 0:
            even, odd = U(line), U(line + rows * pitch)
            for q in range(U(x.shape[2] // 2)):
                laid[even + q] = x[p, row, U(2) * q]
                laid[odd + q] = x[p, row, U(2) * q + U(1)]
            if x.shape[2] % 2:
                laid[line + x.shape[2] // 2] = x[p, row, x.shape[2] - 1]
        else:
            for c in range(x.shape[2]):
                q, side = divmod(c + left, sw)
                laid[line + side * rows * pitch + q] = x[p, row, c]


@jit
def _gather_back(
    out: Array, laid: Array, p: int, sh: int, sw: int, top: int, left: int, rows: int, pitch: int
) -> None:
    """The inverse of `_lay_out`."""
    for row in range(out.shape[1]):
        at, phase = divmod(row + top, sh)
        line = (phase * sw * rows + at) * pitch
        if sw == 1:
            start = U(line + left)
            for q in range(U(out.shape[2])):
                out[p, row, q] = laid[start + q]
        elif sw == 2 and left == 0:
            even, odd = U(line), U(line + rows * pitch)
            for q in range(U(out.shape[2] // 2)):
                out[p, row, U(2) * q] = laid[even + q]
                out[p, row, U(2) * q + U(1)] = laid[odd + q]
            if out.shape[2] % 2:
                out[p, row, out.shape[2] - 1] = laid[line + out.shape[2] // 2]
        else:
            for c in range(out.shape[2]):
                q, side = divmod(c + left, sw)
                out[p, row, c] = laid[line + side * rows * pitch + q]


@jit
def _larger(most: Array, values: Array, at: int, count: int) -> None:
    """most = the maximum of most and the values from `at` on."""
    start = U(at)
    for q in range(U(count)):
        value, seen = values[start + q], most[q]
        most[q] = value if value > seen or value != value else seen


@jit
def _window_maxima(
    best: Array, line: Array, laid: Array, count: int, kh: int, kw: int, sh: int, sw: int,
    rows: int, pitch: int,
) -> None:  # fmt: skip
    """The maxima of all windows: of the columns of the windows first, then of these."""
    plane = rows * pitch
    for side in range(min(kw, sw)):
        most = best if kw == 1 else line[side * plane : (side + 1) * plane]
        # So many maxima of columns are needed that a window begins or goes on at.
        here = count + (kw - 1 - side) // sw
        start = U(side * plane)
        for q in range(U(here)):
            most[q] = laid[start + q]
        for u in range(1, kh):
            _larger(most, laid, (u % sh * sw + side) * plane + u // sh * pitch, here)
    if kw == 1:
        return
    for q in range(U(count)):
        best[q] = line[q]
    for v in range(1, kw):
        _larger(best, line, v % sw * plane + v // sw, count)


@jit
def max_pool(
    out: Array, laid: Array, line: Array, best: Array, x: Array, rows: int, pitch: int,
    kh: int, kw: int, sh: int, sw: int, top: int, left: int,
) -> None:  # fmt: skip
    laid[:] = -np.inf
    count = (out.shape[1] - 1) * pitch + out.shape[2]
    for p in range(x.shape[0]):
        _lay_out(laid, x, p, sh, sw, top, left, rows, pitch)
        _window_maxima(best, line, laid, count, kh, kw, sh, sw, rows, pitch)
        for i in range(out.shape[1]):
            start = U(i * pitch)
            for j in range(U(out.shape[2])):
                out[p, i, j] = best[start + j]


@jit
def _give_gradient(
    gradients: Array, rest: Array, best: Array, laid: Array, at: int, count: int
) -> None:
    """Windows whose maximum is at this tap add their gradient there, and have none left."""
    start = U(at)
    for q in range(U(count)):
        left, seen = rest[q], gradients[start + q]
        hit = laid[start + q] == best[q]
        gradients[start + q] = seen + left if hit else seen
        rest[q] = 0 if hit else left


@jit
def _first_maximum(
    x: Array, p: int, best: Array, first: int, last: int, start: int, stop: int
) -> tuple[int, int]:
    """The first position of a window's maximum, in reading order."""
    for u in range(first, last):
        for v in range(start, stop):
            if x[p, u, v] == best or (x[p, u, v] != x[p, u, v] and best != best):
                return u, v
    return first, start


@jit
def _give_one_by_one(
    out: Array, g: Array, x: Array, p: int, best: Array, pitch: int,
    kh: int, kw: int, sh: int, sw: int, top: int, left: int,
) -> None:  # fmt: skip
    """The gradient of a plane where NaN equals nothing, or minus infinity equals the edges, too."""
    out[p] = 0
    for i in range(g.shape[1]):
        first, last = max(0, i * sh - top), min(x.shape[1], i * sh - top + kh)
        for j in range(g.shape[2]):
            start, stop = max(0, j * sw - left), min(x.shape[2], j * sw - left + kw)
            u, v = _first_maximum(x, p, best[i * pitch + j], first, last, start, stop)
            out[p, u, v] += g[p, i, j]


@jit
def max_pool_gradient(
    out: Array, laid: Array, line: Array, best: Array, gradients: Array, rest: Array, g: Array,
    x: Array, rows: int, pitch: int,
    kh: int, kw: int, sh: int, sw: int, top: int, left: int,
) -> None:  # fmt: skip
    laid[:] = -np.inf
    rest[:] = 0  # between the rows, too
    count = (g.shape[1] - 1) * pitch + g.shape[2]
    for p in range(x.shape[0]):
        _lay_out(laid, x, p, sh, sw, top, left, rows, pitch)
        _window_maxima(best, line, laid, count, kh, kw, sh, sw, rows, pitch)
        ordinary = 0
        for i in range(g.shape[1]):
            start = U(i * pitch)
            for j in range(U(g.shape[2])):
                rest[start + j] = g[p, i, j]
                ordinary += best[start + j] > -np.inf
        if ordinary < g.shape[1] * g.shape[2]:
            _give_one_by_one(out, g, x, p, best, pitch, kh, kw, sh, sw, top, left)
            continue
        gradients[:] = 0
        for u in range(kh):
            for v in range(kw):
                at = (u % sh * sw + v % sw) * rows * pitch + u // sh * pitch + v // sw
                _give_gradient(gradients, rest, best, laid, at, count)
        _gather_back(out, gradients, p, sh, sw, top, left, rows, pitch)
