"""Single-threaded loops of max pooling, plane by plane."""

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.runtime.jit import jit

# A plane is first copied into a layout in which every tap of all windows is a contiguous range.
# Each row gets edges of minus infinity, and is split by the stride: for stride 2, into columns 0,
# 2, 4, ... and 1, 3, 5, .... All indices are unsigned, because the compiler does not vectorise a
# loop whose index might be negative.
U = np.uint64

# The maximum of two numbers, where NaN is larger than all, is `b if b > a or b != b else a`. It is
# written out in the loops below, because they are not vectorised otherwise.


@jit
def _lay_out(laid: Array, x: Array, p: int, left: int, stride: int, pitch: int) -> None:
    """laid[(row * stride + c % stride) * pitch + c // stride] = x[p, row, c - left], else -inf."""
    laid[:] = -np.inf
    for row in range(x.shape[1]):
        for phase in range(stride):
            first = (phase - left) % stride  # the first column of the image with this phase
            start = U((row * stride + phase) * pitch + (first + left) // stride)
            count, by, at = U(max(0, -(-(x.shape[2] - first) // stride))), U(stride), U(first)
            if stride == 1:
                for q in range(count):
                    laid[start + q] = x[p, row, q]
            else:
                for q in range(count):
                    laid[start + q] = x[p, row, at + q * by]


@jit
def _gather_back(out: Array, laid: Array, p: int, left: int, stride: int, pitch: int) -> None:
    """The inverse of `_lay_out`."""
    for row in range(out.shape[1]):
        for phase in range(stride):
            first = (phase - left) % stride
            start = U((row * stride + phase) * pitch + (first + left) // stride)
            count, by, at = U(max(0, -(-(out.shape[2] - first) // stride))), U(stride), U(first)
            if stride == 1:
                for q in range(count):
                    out[p, row, q] = laid[start + q]
            else:
                for q in range(count):
                    out[p, row, at + q * by] = laid[start + q]


@jit
def _window_maxima(
    best: Array, line: Array, laid: Array, first: int, last: int, kw: int, stride: int, pitch: int
) -> None:
    """best[j] = the maximum of window j of rows first to last: first by columns, then by rows."""
    whole, windows = U(stride * pitch), U(best.size)
    start = U(first) * whole
    for q in range(whole):
        line[q] = laid[start + q]
    for row in range(first + 1, last):
        start = U(row) * whole
        for q in range(whole):
            value, most = laid[start + q], line[q]
            line[q] = value if value > most or value != value else most
    for j in range(windows):
        best[j] = line[j]
    for tap in range(1, kw):
        start = U(tap % stride * pitch + tap // stride)
        for j in range(windows):
            value, most = line[start + j], best[j]
            best[j] = value if value > most or value != value else most


@jit
def max_pool(
    out: Array, laid: Array, line: Array, best: Array, x: Array,
    kh: int, kw: int, sh: int, sw: int, top: int, left: int,
) -> None:  # fmt: skip
    pitch = line.size // sw
    for p in range(x.shape[0]):
        _lay_out(laid, x, p, left, sw, pitch)
        for i in range(out.shape[1]):
            first, last = max(0, i * sh - top), min(x.shape[1], i * sh - top + kh)
            _window_maxima(best, line, laid, first, last, kw, sw, pitch)
            for j in range(best.size):
                out[p, i, j] = best[j]


@jit
def _give_gradient(gradients: Array, rest: Array, best: Array, laid: Array, at: int) -> None:
    """Windows whose maximum is at this tap add their gradient there, and have none left."""
    start = U(at)
    for j in range(U(best.size)):
        left, seen = rest[j], gradients[start + j]
        hit = laid[start + j] == best[j]
        gradients[start + j] = seen + left if hit else seen
        rest[j] = 0 if hit else left


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
def max_pool_gradient(
    out: Array, laid: Array, line: Array, best: Array, gradients: Array,
    rest: Array, g: Array, x: Array, kh: int, kw: int, sh: int, sw: int, top: int,
    left: int,
) -> None:  # fmt: skip
    pitch = line.size // sw
    for p in range(x.shape[0]):
        _lay_out(laid, x, p, left, sw, pitch)
        gradients[:] = 0
        for i in range(g.shape[1]):
            first, last = max(0, i * sh - top), min(x.shape[1], i * sh - top + kh)
            _window_maxima(best, line, laid, first, last, kw, sw, pitch)
            ordinary = 0
            for j in range(best.size):
                rest[j] = g[p, i, j]
                ordinary += best[j] > -np.inf
            if ordinary == best.size:
                for u in range(first, last):
                    for v in range(kw):
                        _give_gradient(
                            gradients, rest, best, laid, (u * sw + v % sw) * pitch + v // sw
                        )
                continue
            for j in range(
                best.size
            ):  # NaN equals nothing, and minus infinity equals the edges, too
                start, stop = max(0, j * sw - left), min(x.shape[2], j * sw - left + kw)
                u, v = _first_maximum(x, p, best[j], first, last, start, stop)
                gradients[(u * sw + (v + left) % sw) * pitch + (v + left) // sw] += g[p, i, j]
        _gather_back(out, gradients, p, left, sw, pitch)
