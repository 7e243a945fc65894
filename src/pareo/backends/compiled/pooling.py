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
        row = x[u]
        for c in range(line.size):
            line[c] = row[c] if row[c] > line[c] or row[c] != row[c] else line[c]


@jit
def _row_max(
    best: Any, wide: Any, line: Any, x: Any, first: int, last: int, kw: int, sw: int
) -> None:
    """best[j] = the largest of window j of rows first to last: down the columns, then along.

    line is the middle of wide, between edges of minus infinity, so that no window needs a bound.
    """
    _columns_max(line, x, first, last)
    for j in range(best.size):
        best[j] = wide[j * sw]
    for v in range(1, kw):
        seen = wide[v:]
        if sw == 1:
            for j in range(best.size):
                best[j] = seen[j] if seen[j] > best[j] or seen[j] != seen[j] else best[j]
        else:
            for j in range(best.size):
                value = seen[j * sw]
                best[j] = value if value > best[j] or value != value else best[j]


@jit
def _max_pool(
    out: Any, wide: Any, x: Any, kh: int, kw: int, sh: int, sw: int, top: int, left: int
) -> None:
    wide[:] = -np.inf
    line = wide[left : left + x.shape[2]]
    for p in range(x.shape[0]):
        for i in range(out.shape[1]):
            first, last = max(0, i * sh - top), min(x.shape[1], i * sh - top + kh)
            _row_max(out[p, i], wide, line, x[p], first, last, kw, sw)


@jit
def _first(x: Any, best: Any, first: int, last: int, start: int, stop: int) -> Any:
    """Where in reading order the window first holds its largest element."""
    for u in range(first, last):
        for v in range(start, stop):
            if x[u, v] == best or (x[u, v] != x[u, v] and best != best):
                return u, v
    return first, start


@jit
def _max_pool_gradient(
    out: Any, wide: Any, best: Any, g: Any, x: Any,
    kh: int, kw: int, sh: int, sw: int, top: int, left: int,
) -> None:  # fmt: skip
    wide[:] = -np.inf
    line = wide[left : left + x.shape[2]]
    for p in range(x.shape[0]):
        out[p] = 0
        for i in range(g.shape[1]):
            first, last = max(0, i * sh - top), min(x.shape[1], i * sh - top + kh)
            _row_max(best, wide, line, x[p], first, last, kw, sw)
            for j in range(best.size):
                start, stop = max(0, j * sw - left), min(x.shape[2], j * sw - left + kw)
                u, v = _first(x[p], best[j], first, last, start, stop)
                out[p, u, v] += g[p, i, j]


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


def _wide(x: Spec, pooled: Spec, size: Any, stride: Any) -> int:
    """How far the windows of one row reach, from edge to edge."""
    return max((pooled.shape[3] - 1) * stride[1] + size[1], x.shape[3] + 2 * size[1])


def _one_row(out: Spec, x: Spec, *, size: Any, stride: Any, **_: Any) -> list[Spec]:
    return [x.like((workers(), _wide(x, out, size, stride)))]


def _two_rows(out: Spec, g: Spec, x: Spec, *, size: Any, stride: Any, **_: Any) -> list[Spec]:
    return [x.like((workers(), _wide(x, g, size, stride))), x.like((workers(), g.shape[3]))]


@kernel(strided=False, scratch=_one_row)
def max_pool(
    out: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool, scratch: Any
) -> None:
    _planewise(_max_pool, out, scratch, [x], size, stride, padding)


@kernel(strided=False, scratch=_two_rows)
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
