"""Pooling, plane by plane; a plane is one channel of one image."""

from typing import Any

import numpy as np

from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.jit import jit
from pareo.backends.pool import split, split_numbered, workers
from pareo.spec import Spec

kernel = backend.kernel


# The larger of two numbers, where a NaN is larger than all: `b if b > a or b != b else a`. It is
# written out below, because only so do the loops vectorise.


@jit
def _columns_max(line: Any, x: Any, first: int, last: int) -> None:
    """line[c] = the largest of x[first:last, c]."""
    for c in range(line.size):
        line[c] = x[first, c]
    for u in range(first + 1, last):
        for c in range(line.size):
            line[c] = x[u, c] if x[u, c] > line[c] or x[u, c] != x[u, c] else line[c]


@jit
def _max_pool(
    out: Any, line: Any, x: Any, kh: int, kw: int, sh: int, sw: int, top: int, left: int
) -> None:
    """Down the columns first, whole rows at a time, then along the row; line holds one row."""
    for p in range(x.shape[0]):
        for i in range(out.shape[1]):
            first, last = max(0, i * sh - top), min(x.shape[1], i * sh - top + kh)
            _columns_max(line, x[p], first, last)
            for j in range(out.shape[2]):
                start, stop = max(0, j * sw - left), min(x.shape[2], j * sw - left + kw)
                best = line[start]
                for v in range(start + 1, stop):
                    best = line[v] if line[v] > best or line[v] != line[v] else best
                out[p, i, j] = best


@jit
def _columns_first_max(line: Any, rows: Any, x: Any, first: int, last: int) -> None:
    """Likewise, and rows[c] = the first row in which it stands."""
    for c in range(line.size):
        line[c] = x[first, c]
        rows[c] = first
    for u in range(first + 1, last):
        row = np.int32(u)
        for c in range(line.size):
            wins = x[u, c] > line[c] or (x[u, c] != x[u, c] and line[c] == line[c])
            line[c] = x[u, c] if wins else line[c]
            rows[c] = row if wins else rows[c]


@jit
def _max_pool_gradient(
    out: Any,
    line: Any,
    rows: Any,
    g: Any,
    x: Any,
    kh: int,
    kw: int,
    sh: int,
    sw: int,
    top: int,
    left: int,
) -> None:
    for p in range(x.shape[0]):
        out[p] = 0
        for i in range(g.shape[1]):
            first, last = max(0, i * sh - top), min(x.shape[1], i * sh - top + kh)
            _columns_first_max(line, rows, x[p], first, last)
            for j in range(g.shape[2]):
                start, stop = max(0, j * sw - left), min(x.shape[2], j * sw - left + kw)
                best, row, column = line[start], rows[start], start
                for v in range(start + 1, stop):
                    value = line[v]
                    # Of equal ones the first in reading order: the higher row, then the left.
                    same = value == best or (value != value and best != best)
                    wins = value > best or (value != value and best == best)
                    if wins or (same and rows[v] < row):
                        best, row, column = value, rows[v], v
                out[p, row, column] += g[p, i, j]


@jit
def _average_pool(
    out: Any, x: Any, kh: int, kw: int, sh: int, sw: int, top: int, left: int
) -> None:
    for p in range(x.shape[0]):
        for i in range(out.shape[1]):
            first, last = max(0, i * sh - top), min(x.shape[1], i * sh - top + kh)
            for j in range(out.shape[2]):
                start, stop = max(0, j * sw - left), min(x.shape[2], j * sw - left + kw)
                total = x.dtype.type(0)
                for u in range(first, last):
                    for v in range(start, stop):
                        total += x[p, u, v]
                out[p, i, j] = total / x.dtype.type((last - first) * (stop - start))


@jit
def _average_pool_gradient(
    out: Any, g: Any, kh: int, kw: int, sh: int, sw: int, top: int, left: int
) -> None:
    for p in range(out.shape[0]):
        out[p] = 0
        for i in range(g.shape[1]):
            first, last = max(0, i * sh - top), min(out.shape[1], i * sh - top + kh)
            for j in range(g.shape[2]):
                start, stop = max(0, j * sw - left), min(out.shape[2], j * sw - left + kw)
                share = g[p, i, j] / g.dtype.type((last - first) * (stop - start))
                for u in range(first, last):
                    for v in range(start, stop):
                        out[p, u, v] += share


def _planewise(
    loop: Any, out: Any, room: list[Any], operands: list[Any], size: Any, stride: Any, padding: Any
) -> None:
    """A loop over all planes of images (N, C, H, W), split over the threads, each with its room."""
    target, *sources = [a.reshape(-1, *a.shape[2:]) for a in (out, *operands)]
    most = max(int(np.prod(a.shape[1:])) for a in (target, *sources)) * size[0] * size[1]

    def work(part: int, lo: int, hi: int) -> None:
        own = [a[part] for a in room]
        planes = [a[lo:hi] for a in sources]
        loop(target[lo:hi], *own, *planes, *size, *stride, *padding[:2])

    split_numbered(work, target.shape[0], max(1, GRAIN // max(1, most)))


def _one_row(out: Spec, x: Spec, **_: Any) -> list[Spec]:
    return [x.like((workers(), x.shape[3]))]


def _one_row_and_indices(out: Spec, g: Spec, x: Spec, **_: Any) -> list[Spec]:
    return [x.like((workers(), x.shape[3])), Spec((workers(), x.shape[3]), np.int32)]


@kernel(strided=False, scratch=_one_row)
def max_pool(
    out: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool, scratch: Any
) -> None:
    _planewise(_max_pool, out, scratch, [x], size, stride, padding)


@kernel(strided=False, scratch=_one_row_and_indices)
def max_pool_gradient(
    out: Any, g: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool, scratch: Any
) -> None:
    _planewise(_max_pool_gradient, out, scratch, [g, x], size, stride, padding)


@kernel(strided=False)
def average_pool(out: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool) -> None:
    _planewise(_average_pool, out, [], [x], size, stride, padding)


@kernel(strided=False)
def average_pool_gradient(
    out: Any, g: Any, image: Any, size: Any, stride: Any, padding: Any, ceil: bool
) -> None:
    _planewise(_average_pool_gradient, out, [], [g], size, stride, padding)


@jit
def _subsample(out: Any, x: Any, w: Any, b: Any, sh: int, sw: int) -> None:
    for p in range(x.shape[0]):
        for i in range(out.shape[1]):
            for j in range(out.shape[2]):
                total = b
                for u in range(w.shape[0]):
                    for v in range(w.shape[1]):
                        total += w[u, v] * x[p, i * sh + u, j * sw + v]
                out[p, i, j] = total


@kernel(strided=False)
def subsample(out: Any, x: Any, w: Any, b: Any, stride: Any) -> None:
    target, planes = out.reshape(-1, *out.shape[2:]), x.reshape(-1, *x.shape[2:])
    bias = x.dtype.type(b.item())
    least = max(1, GRAIN // max(1, out.shape[2] * out.shape[3] * w.size))
    split(
        lambda lo, hi: _subsample(target[lo:hi], planes[lo:hi], w, bias, *stride),
        planes.shape[0],
        least,
    )
