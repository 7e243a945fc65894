"""Pooling, plane by plane; a plane is one channel of one image."""

from typing import Any

import numpy as np

from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split, split_numbered, workers
from pareo.spec import Spec

kernel = backend.kernel


# A plane is first laid out so that every step of a window is a straight loop over neighbours: each
# row with edges of minus infinity, and split by the stride into columns 0, 2, 4, ... and 1, 3, ...
# Column `tap` of all windows is then one stretch. Indices are unsigned, all of them in a sum: the
# compiler does not vectorise a loop whose index might be negative.
U = np.uint64

# The larger of two numbers, where a NaN is larger than all: `b if b > a or b != b else a`. It is
# written out below, because only so do the loops vectorise.


@jit
def _laid_out(laid: Any, x: Any, p: int, left: int, stride: int, pitch: int) -> None:
    """laid[(row * stride + c % stride) * pitch + c // stride] = x[p, row, c - left], else -inf."""
    laid[:] = -np.inf
    for row in range(x.shape[1]):
        for phase in range(stride):
            first = (phase - left) % stride  # the first column of the image that falls here
            start = U((row * stride + phase) * pitch + (first + left) // stride)
            count, by, at = U(max(0, -(-(x.shape[2] - first) // stride))), U(stride), U(first)
            if stride == 1:
                for q in range(count):
                    laid[start + q] = x[p, row, q]
            else:
                for q in range(count):
                    laid[start + q] = x[p, row, at + q * by]


@jit
def _gathered(out: Any, laid: Any, p: int, left: int, stride: int, pitch: int) -> None:
    """The way back of `_laid_out`."""
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
def _largest(
    best: Any, line: Any, laid: Any, first: int, last: int, kw: int, stride: int, pitch: int
) -> None:
    """best[j] = the largest of window j of rows first to last: down the columns, then along."""
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
def _max_pool(
    out: Any, laid: Any, line: Any, best: Any, x: Any,
    kh: int, kw: int, sh: int, sw: int, top: int, left: int,
) -> None:  # fmt: skip
    pitch = line.size // sw
    for p in range(x.shape[0]):
        _laid_out(laid, x, p, left, sw, pitch)
        for i in range(out.shape[1]):
            first, last = max(0, i * sh - top), min(x.shape[1], i * sh - top + kh)
            _largest(best, line, laid, first, last, kw, sw, pitch)
            for j in range(best.size):
                out[p, i, j] = best[j]


@jit
def _take(errors: Any, rest: Any, best: Any, laid: Any, at: int) -> None:
    """Windows whose largest element is this one give it their error, and keep none for others."""
    start = U(at)
    for j in range(U(best.size)):
        left, seen = rest[j], errors[start + j]
        hit = laid[start + j] == best[j]
        errors[start + j] = seen + left if hit else seen
        rest[j] = 0 if hit else left


@jit
def _first(x: Any, p: int, best: Any, first: int, last: int, start: int, stop: int) -> Any:
    """Where in reading order the window first holds its largest element."""
    for u in range(first, last):
        for v in range(start, stop):
            if x[p, u, v] == best or (x[p, u, v] != x[p, u, v] and best != best):
                return u, v
    return first, start


@jit
def _max_pool_gradient(
    out: Any, laid: Any, line: Any, best: Any, errors: Any, rest: Any, g: Any, x: Any,
    kh: int, kw: int, sh: int, sw: int, top: int, left: int,
) -> None:  # fmt: skip
    pitch = line.size // sw
    for p in range(x.shape[0]):
        _laid_out(laid, x, p, left, sw, pitch)
        errors[:] = 0
        for i in range(g.shape[1]):
            first, last = max(0, i * sh - top), min(x.shape[1], i * sh - top + kh)
            _largest(best, line, laid, first, last, kw, sw, pitch)
            plain = 0
            for j in range(best.size):
                rest[j] = g[p, i, j]
                plain += best[j] > -np.inf
            if plain == best.size:
                for u in range(first, last):
                    for v in range(kw):
                        _take(errors, rest, best, laid, (u * sw + v % sw) * pitch + v // sw)
                continue
            for j in range(best.size):  # NaN equals nothing, and minus infinity the edges too
                start, stop = max(0, j * sw - left), min(x.shape[2], j * sw - left + kw)
                u, v = _first(x, p, best[j], first, last, start, stop)
                errors[(u * sw + (v + left) % sw) * pitch + (v + left) // sw] += g[p, i, j]
        _gathered(out, errors, p, left, sw, pitch)


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


def _laid(x: Spec, pooled: Spec, size: Any, stride: Any, padding: Any) -> list[Spec]:
    """For every worker: a plane laid out, one row of it, and one of windows."""
    reach = max((pooled.shape[3] - 1) * stride[1] + size[1], x.shape[3] + padding[1])
    row = stride[1] * -(-reach // stride[1])
    return [x.like((workers(), n)) for n in (x.shape[2] * row, row, pooled.shape[3])]


def _forward_room(
    out: Spec, x: Spec, *, size: Any, stride: Any, padding: Any, ceil: bool
) -> list[Spec]:
    return _laid(x, out, size, stride, padding)


def _back_room(
    out: Spec, g: Spec, x: Spec, *, size: Any, stride: Any, padding: Any, ceil: bool
) -> list[Spec]:
    plane, row, windows = _laid(x, g, size, stride, padding)
    return [plane, row, windows, plane, windows]


@kernel(strided=False, scratch=_forward_room)
def max_pool(
    out: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool, scratch: Any
) -> None:
    _planewise(_max_pool, out, scratch, [x], size, stride, padding)


@kernel(strided=False, scratch=_back_room)
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
