"""Pooling, plane by plane; a plane is one channel of one image."""

from typing import Any

import numpy as np

from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.jit import jit
from pareo.backends.pool import split

kernel = backend.kernel


@jit
def _max_pool(out: Any, x: Any, kh: int, kw: int, sh: int, sw: int, top: int, left: int) -> None:
    for p in range(x.shape[0]):
        for i in range(out.shape[1]):
            first, last = max(0, i * sh - top), min(x.shape[1], i * sh - top + kh)
            for j in range(out.shape[2]):
                start, stop = max(0, j * sw - left), min(x.shape[2], j * sw - left + kw)
                best = x[p, first, start]
                for u in range(first, last):
                    for v in range(start, stop):
                        value = x[p, u, v]
                        if value > best or value != value:
                            best = value
                out[p, i, j] = best


@jit
def _max_pool_gradient(
    out: Any, g: Any, x: Any, kh: int, kw: int, sh: int, sw: int, top: int, left: int
) -> None:
    for p in range(x.shape[0]):
        out[p] = 0
        for i in range(g.shape[1]):
            first, last = max(0, i * sh - top), min(x.shape[1], i * sh - top + kh)
            for j in range(g.shape[2]):
                start, stop = max(0, j * sw - left), min(x.shape[2], j * sw - left + kw)
                best, row, column = x[p, first, start], first, start
                for u in range(first, last):
                    for v in range(start, stop):
                        value = x[p, u, v]
                        if value > best or (value != value and best == best):
                            best, row, column = value, u, v
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


def _planewise(loop: Any, arrays: list[Any], size: Any, stride: Any, padding: Any) -> None:
    """A loop over all planes of images (N, C, H, W), split over the threads."""
    planes = [a.reshape(-1, *a.shape[2:]) for a in arrays]
    work = max(int(np.prod(a.shape[2:])) for a in arrays) * size[0] * size[1]
    split(
        lambda lo, hi: loop(*[a[lo:hi] for a in planes], *size, *stride, *padding[:2]),
        planes[0].shape[0],
        max(1, GRAIN // max(1, work)),
    )


@kernel(strided=False)
def max_pool(out: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool) -> None:
    _planewise(_max_pool, [out, x], size, stride, padding)


@kernel(strided=False)
def max_pool_gradient(
    out: Any, g: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool
) -> None:
    _planewise(_max_pool_gradient, [out, g, x], size, stride, padding)


@kernel(strided=False)
def average_pool(out: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool) -> None:
    _planewise(_average_pool, [out, x], size, stride, padding)


@kernel(strided=False)
def average_pool_gradient(
    out: Any, g: Any, image: Any, size: Any, stride: Any, padding: Any, ceil: bool
) -> None:
    _planewise(_average_pool_gradient, [out, g], size, stride, padding)


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
