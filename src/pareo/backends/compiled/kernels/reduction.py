"""Reductions: compiled loops for axes that are adjacent, NumPy for others."""

import math
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends import sums
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.runtime import recording
from pareo.backends.compiled.runtime.arrays import add_parts
from pareo.backends.compiled.runtime.jit import jit, jit_strict
from pareo.backends.compiled.runtime.thread_pool import split_numbered, workers
from pareo.spec import Spec

kernel = backend.kernel

# Long sums are taken in blocks of this many elements, and the blocks are added in double precision.
# Along a row, a block is summed in many parts at a time, with few roundings; along a column, one
# element after the other.
BLOCK = 1024
ROWS = 256


def adjacent(axes: tuple[int, ...]) -> bool:
    """Whether the axes are adjacent, so that they can be reduced without a change of layout."""
    return not axes or axes == tuple(range(axes[0], axes[-1] + 1))


def _kept(ndim: int, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis for axis in range(ndim) if axis not in axes)


def _keeps_middle(ndim: int, axes: tuple[int, ...]) -> bool:
    """Whether the axes are the first and the last ones, and those that stay are adjacent."""
    kept = _kept(ndim, axes)
    return bool(kept) and 0 in axes and ndim - 1 in axes and adjacent(kept)


def _around(a: Array, axes: tuple[int, ...]) -> Array:
    """a as (reduced, kept, reduced)."""
    kept = _kept(a.ndim, axes)
    sizes = [a.shape[: kept[0]], a.shape[kept[0] : kept[-1] + 1], a.shape[kept[-1] + 1 :]]
    return a.reshape([math.prod(some) for some in sizes])


def _reduced(a: Array, axes: tuple[int, ...]) -> Array:
    """a as (before, reduced, after) if the axes are adjacent, else None."""
    if not axes or not adjacent(axes):
        return None
    before = math.prod(a.shape[: axes[0]])
    after = math.prod(a.shape[axes[-1] + 1 :])
    return a.reshape(before, math.prod(a.shape[axes[0] : axes[-1] + 1]), after)


@jit
def _sum_rows(out: Array, a: Array) -> None:
    """out[i, 0] = sum of a[i, :, 0]."""
    for i in range(a.shape[0]):
        total = 0.0
        for start in range(0, a.shape[1], BLOCK):
            stop = min(start + BLOCK, a.shape[1])
            part = a.dtype.type(0)
            for j in range(start, stop):
                part += a[i, j, 0]
            total += part
        out[i, 0] = total


@jit
def _sum_planes(sums: Array, a: Array, low: int, high: int) -> None:
    """sums[j] = the sum of a[:, j, :] in double precision, for j from low to high."""
    for j in range(low, high):
        sums[j] = 0
    for i in range(a.shape[0]):
        for j in range(low, high):
            for start in range(0, a.shape[2], BLOCK):
                stop = min(start + BLOCK, a.shape[2])
                part = a.dtype.type(0)
                for k in range(start, stop):
                    part += a[i, j, k]
                sums[j] += part


@jit
def _sum_columns(out: Array, a: Array, totals: Array, parts: Array) -> None:
    """out[i, j] = the sum of a[i, :, j]; totals and parts are buffers for a row."""
    for i in range(a.shape[0]):
        totals[:] = 0
        for start in range(0, a.shape[1], ROWS):
            stop = min(start + ROWS, a.shape[1])
            parts[:] = 0
            for j in range(start, stop):
                for k in range(a.shape[2]):
                    parts[k] += a[i, j, k]
            for k in range(a.shape[2]):
                totals[k] += parts[k]
        for k in range(a.shape[2]):
            out[i, k] = totals[k]


def _sum_scratch(out: Spec, a: Spec, axis: tuple[int, ...], keepdims: bool) -> list[Spec]:
    """For column sums, for every worker a row in double precision and one in the array's own."""
    if not adjacent(axis):
        if _keeps_middle(a.ndim, axis):
            return [Spec((workers(), out.size), np.float64)]
        return sums.room(a, axis, contiguous=True)
    after = math.prod(a.shape[axis[-1] + 1 :]) if axis else 1
    if after == 1:
        return []
    return [Spec((workers(), after), np.float64), a.like((workers(), after))]


def _sum_around(out: Array, a: Array, sums: Array) -> None:
    """The sums over the first and the last axis; `sums` has those of every worker."""
    images, kept, _ = a.shape
    least = GRAIN / max(1, a.size)  # of all of the work, for a thread
    if images >= workers():
        few = max(1, int(least * images))
        parts = split_numbered(
            lambda part, lo, hi: _sum_planes(sums[part], a[lo:hi], 0, kept), images, few
        )
    else:
        parts, few = 1, max(1, int(least * kept))
        split_numbered(lambda _, lo, hi: _sum_planes(sums[0], a, lo, hi), kept, few)
    add_parts(out, sums, parts)


@kernel(strided=False, scratch=_sum_scratch, replayable=True)
def sum_(
    out: Array, a: Array, axis: tuple[int, ...], keepdims: bool, scratch: tuple[Array, ...]
) -> None:
    reduced = _reduced(a, axis)
    if _keeps_middle(a.ndim, axis):
        _sum_around(out, _around(a, axis), scratch[0])
        return
    if reduced is None:
        recording.refuse("a sum over axes that are not adjacent, which is left to NumPy")
        sums.add_up(out, a, axis, scratch)
        return
    target = out.reshape(reduced.shape[0], reduced.shape[2])
    least = max(1, GRAIN // max(1, reduced.shape[1] * reduced.shape[2]))

    def work(part: int, lo: int, hi: int) -> None:
        if scratch:
            _sum_columns(target[lo:hi], reduced[lo:hi], scratch[0][part], scratch[1][part])
        else:
            _sum_rows(target[lo:hi], reduced[lo:hi])

    split_numbered(work, reduced.shape[0], least)


@kernel(strided=False, scratch=_sum_scratch, replayable=True)
def mean(
    out: Array, a: Array, axis: tuple[int, ...], keepdims: bool, scratch: tuple[Array, ...]
) -> None:
    sum_(out, a, axis, keepdims, scratch)
    _divide(out.reshape(-1), out.dtype.type(math.prod(a.shape[i] for i in axis)))


@jit_strict
def _divide(a: Array, by: float) -> None:
    for i in range(a.size):
        a[i] /= by


@kernel()
def max_(out: Array, a: Array, axis: tuple[int, ...], keepdims: bool) -> None:
    np.max(a, axis=axis, keepdims=keepdims, out=out)


@jit
def _divide_gradient(out: Array, g: Array, a: Array, y: Array) -> None:
    """Along the middle axis, divide g equally between the elements of a that equal y."""
    for i in range(a.shape[0]):
        for k in range(a.shape[2]):
            top = y[i, 0, k]
            ties = 0
            for j in range(a.shape[1]):
                ties += a[i, j, k] == top
            rest = top if top != top else a.dtype.type(0)  # NaN equals nothing, and is kept
            for j in range(a.shape[1]):
                out[i, j, k] = g[i, 0, k] / ties if a[i, j, k] == top else rest


@kernel(strided=False, scratch=lambda out, g, a, y, axis: [a, a] if not adjacent(axis) else [])
def max_gradient(
    out: Array, g: Array, a: Array, y: Array, axis: tuple[int, ...], scratch: tuple[Array, ...]
) -> None:
    if scratch:
        # Move the reduced axes to the end, and back.
        order = [i for i in range(a.ndim) if i not in axis] + list(axis)
        moved, result = (piece.reshape([a.shape[i] for i in order]) for piece in scratch)
        moved[...] = a.transpose(order)
        shape = (-1, math.prod(a.shape[i] for i in axis), 1)
        _divide_gradient(
            result.reshape(shape), g.reshape(-1, 1, 1), moved.reshape(shape), y.reshape(-1, 1, 1)
        )
        out.transpose(order)[...] = result
        return
    # If no axis is reduced, every element is its own maximum.
    reduced = a.reshape(a.size, 1, 1) if not axis else _reduced(a, axis)
    small = (reduced.shape[0], 1, reduced.shape[2])
    _divide_gradient(out.reshape(reduced.shape), g.reshape(small), reduced, y.reshape(small))


@jit
def _argmax(out: Array, best: Array, a: Array) -> None:
    """out[i, k] = the first position of the maximum of a[i, :, k]; best is a buffer for a row."""
    for i in range(a.shape[0]):
        for k in range(a.shape[2]):
            best[k] = a[i, 0, k]
            out[i, k] = 0
        for j in range(1, a.shape[1]):
            for k in range(a.shape[2]):
                value, most, place = a[i, j, k], best[k], out[i, k]
                larger = value > most or (value != value and most == most)  # NaN is larger than all
                best[k] = value if larger else most
                out[i, k] = j if larger else place


def _argmax_scratch(out: Spec, a: Spec, axis: int | None) -> list[Spec]:
    after = 1 if axis is None else math.prod(a.shape[axis + 1 :])
    return [] if after == 1 else [a.like((workers(), after))]


@kernel(strided=False, scratch=_argmax_scratch)
def argmax(out: Array, a: Array, axis: int | None, scratch: tuple[Array, ...]) -> None:
    if axis is None or not scratch:
        np.argmax(a.reshape(-1) if axis is None else a, axis=axis, out=out)
        return
    # NumPy would make a copy with this axis last.
    reduced = _reduced(a, (axis,))
    target = out.reshape(reduced.shape[0], reduced.shape[2])
    least = max(1, GRAIN // max(1, reduced.shape[1] * reduced.shape[2]))

    def work(part: int, lo: int, hi: int) -> None:
        _argmax(target[lo:hi], scratch[0][part], reduced[lo:hi])

    split_numbered(work, reduced.shape[0], least)


@jit
def _squares(a: Array) -> float:
    """The sum of squares of a flat array, in double precision, so that no square overflows."""
    total = 0.0
    for i in range(a.size):
        x = np.float64(a[i])
        total += x * x
    return total


@kernel(strided=False)
def norm(out: Array, *arrays: Array) -> None:
    total = 0.0
    for array in arrays:
        flat, parts = array.reshape(-1), [0.0] * workers()

        def work(part: int, lo: int, hi: int, flat: Array = flat, parts: Any = parts) -> None:
            parts[part] = _squares(flat[lo:hi])

        split_numbered(work, flat.size, GRAIN)
        total += sum(parts)
    out[...] = math.sqrt(total)
