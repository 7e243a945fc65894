"""Reductions: axes that lie side by side fold in compiled loops, scattered ones in NumPy."""

import math
from typing import Any

import numpy as np

from pareo.backends import sums
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split_numbered, workers
from pareo.spec import Spec

kernel = backend.kernel

# Long sums are taken in blocks of so many elements, and the blocks are added in double precision.
# Along a row a block is added in many parts at once, and is exact to a few roundings; down a column
# one by one.
BLOCK = 1024
ROWS = 256


def side_by_side(axes: tuple[int, ...]) -> bool:
    """Whether the axes form one run, so that folding them needs no change of layout."""
    return not axes or axes == tuple(range(axes[0], axes[-1] + 1))


def _folded(a: Any, axes: tuple[int, ...]) -> Any:
    """a as (before, folded, after) where the axes lie side by side, else None."""
    if not axes or not side_by_side(axes):
        return None
    before = math.prod(a.shape[: axes[0]])
    after = math.prod(a.shape[axes[-1] + 1 :])
    return a.reshape(before, math.prod(a.shape[axes[0] : axes[-1] + 1]), after)


@jit
def _sum_rows(out: Any, a: Any) -> None:
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
def _sum_columns(out: Any, a: Any, totals: Any, parts: Any) -> None:
    """out[i, j] = sum over the middle axis of a[i, :, j]; totals and parts have room for a row."""
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


def _room(out: Spec, a: Spec, axis: tuple[int, ...], keepdims: bool) -> list[Spec]:
    """A row in double precision and one in the array's own for each worker, for column sums."""
    if not side_by_side(axis):
        return sums.room(a, axis, contiguous=True)
    after = math.prod(a.shape[axis[-1] + 1 :]) if axis else 1
    if after == 1:
        return []
    return [Spec((workers(), after), np.float64), a.like((workers(), after))]


@kernel(strided=False, scratch=_room)
def sum_(out: Any, a: Any, axis: tuple[int, ...], keepdims: bool, scratch: tuple[Any, ...]) -> None:
    folded = _folded(a, axis)
    if folded is None:
        sums.add_up(out, a, axis, scratch)
        return
    target = out.reshape(folded.shape[0], folded.shape[2])
    least = max(1, GRAIN // max(1, folded.shape[1] * folded.shape[2]))

    def work(part: int, lo: int, hi: int) -> None:
        if scratch:
            _sum_columns(target[lo:hi], folded[lo:hi], scratch[0][part], scratch[1][part])
        else:
            _sum_rows(target[lo:hi], folded[lo:hi])

    split_numbered(work, folded.shape[0], least)


@kernel(strided=False, scratch=_room)
def mean(out: Any, a: Any, axis: tuple[int, ...], keepdims: bool, scratch: tuple[Any, ...]) -> None:
    sum_(out, a, axis, keepdims, scratch)
    np.divide(out, out.dtype.type(math.prod(a.shape[i] for i in axis)), out=out)


@kernel()
def max_(out: Any, a: Any, axis: tuple[int, ...], keepdims: bool) -> None:
    np.max(a, axis=axis, keepdims=keepdims, out=out)


@jit
def _share_maximum(out: Any, g: Any, a: Any, y: Any) -> None:
    """Along the middle axis, g in equal shares to the elements of a that equal y."""
    for i in range(a.shape[0]):
        for k in range(a.shape[2]):
            top = y[i, 0, k]
            ties = 0
            for j in range(a.shape[1]):
                ties += a[i, j, k] == top
            rest = top if top != top else a.dtype.type(0)  # a NaN equals nothing, and stays
            for j in range(a.shape[1]):
                out[i, j, k] = g[i, 0, k] / ties if a[i, j, k] == top else rest


@kernel(strided=False, scratch=lambda out, g, a, y, axis: [a, a] if not side_by_side(axis) else [])
def max_gradient(
    out: Any, g: Any, a: Any, y: Any, axis: tuple[int, ...], scratch: tuple[Any, ...]
) -> None:
    if scratch:
        # Move the folded axes to the end, side by side, and back.
        order = [i for i in range(a.ndim) if i not in axis] + list(axis)
        turned, result = (piece.reshape([a.shape[i] for i in order]) for piece in scratch)
        turned[...] = a.transpose(order)
        shape = (-1, math.prod(a.shape[i] for i in axis), 1)
        _share_maximum(
            result.reshape(shape), g.reshape(-1, 1, 1), turned.reshape(shape), y.reshape(-1, 1, 1)
        )
        out.transpose(order)[...] = result
        return
    # Where no axis is folded, every element is its own maximum.
    folded = a.reshape(a.size, 1, 1) if not axis else _folded(a, axis)
    small = (folded.shape[0], 1, folded.shape[2])
    _share_maximum(out.reshape(folded.shape), g.reshape(small), folded, y.reshape(small))


@jit
def _argmax(out: Any, best: Any, a: Any) -> None:
    """out[i, k] = where a[i, :, k] first has its largest element; best has room for a row."""
    for i in range(a.shape[0]):
        for k in range(a.shape[2]):
            best[k] = a[i, 0, k]
            out[i, k] = 0
        for j in range(1, a.shape[1]):
            for k in range(a.shape[2]):
                value, most, place = a[i, j, k], best[k], out[i, k]
                larger = value > most or (value != value and most == most)  # NaN above all
                best[k] = value if larger else most
                out[i, k] = j if larger else place


def _best(out: Spec, a: Spec, axis: int | None) -> list[Spec]:
    after = 1 if axis is None else math.prod(a.shape[axis + 1 :])
    return [] if after == 1 else [a.like((workers(), after))]


@kernel(strided=False, scratch=_best)
def argmax(out: Any, a: Any, axis: int | None, scratch: tuple[Any, ...]) -> None:
    if axis is None or not scratch:
        np.argmax(a.reshape(-1) if axis is None else a, axis=axis, out=out)
        return
    # NumPy would make a copy with this axis last.
    folded = _folded(a, (axis,))
    target = out.reshape(folded.shape[0], folded.shape[2])
    least = max(1, GRAIN // max(1, folded.shape[1] * folded.shape[2]))

    def work(part: int, lo: int, hi: int) -> None:
        _argmax(target[lo:hi], scratch[0][part], folded[lo:hi])

    split_numbered(work, folded.shape[0], least)
