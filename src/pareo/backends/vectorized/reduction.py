"""Reductions of axes."""

from typing import Any

import numpy as np

from pareo.backends import sums
from pareo.backends.vectorized.table import BLOCK, Array, backend, bits, blocks, flags, select
from pareo.spec import Spec


def _chunk_sums(out: Spec, a: Spec, axis: Any, **_: Any) -> list[Spec]:
    return sums.room(a, axis)


@backend.kernel(scratch=_chunk_sums)
def sum_(out: Array, a: Array, axis: Any, keepdims: bool, scratch: tuple[Array, ...]) -> None:
    sums.add_up(out, a, axis, scratch)


@backend.kernel(scratch=_chunk_sums)
def mean(out: Array, a: Array, axis: Any, keepdims: bool, scratch: tuple[Array, ...]) -> None:
    sums.add_up(out, a, axis, scratch)
    np.divide(out, a.size // max(out.size, 1), out=out)


@backend.kernel()
def max_(out: Array, a: Array, axis: Any, keepdims: bool) -> None:
    np.maximum.reduce(a, axis=axis, keepdims=keepdims, out=out)


def _shared(out: Spec, g: Spec, a: Spec, y: Spec, axis: Any) -> list[Spec]:
    return [y, flags(a), bits(a), *sums.room(a, axis, contiguous=True)]


@backend.kernel(in_place=(1,), scratch=_shared)
def max_gradient(
    out: Array, g: Array, a: Array, y: Array, axis: Any, scratch: tuple[Array, ...]
) -> None:
    share, largest, work, *room = scratch
    np.equal(a, y, out=largest)
    np.copyto(out, largest)
    sums.add_up(share, out, axis, room)  # how many are equally large
    np.divide(g, share, out=share)
    np.copyto(out, share)
    select(out, out, largest, work)
    if y.size and np.isnan(np.maximum.reduce(y, axis=None)):
        np.not_equal(y, y, out=largest)
        np.copyto(out, np.nan, where=largest)


def _folded_last(out: Spec, a: Spec, axis: int | None) -> list[Spec]:
    if axis is None or axis == a.ndim - 1:
        return []
    return [a.like((*a.shape[:axis], *a.shape[axis + 1 :], a.shape[axis]))]


@backend.kernel(strided=False, scratch=_folded_last)
def argmax(out: Array, a: Array, axis: int | None, scratch: tuple[Array, ...]) -> None:
    if scratch:  # otherwise NumPy would make this copy, in memory that the program does not plan
        np.copyto(scratch[0], np.moveaxis(a, axis or 0, -1))
        np.argmax(scratch[0], axis=-1, out=out)
    else:
        np.argmax(a, axis=axis, out=out)


def _doubles(out: Spec, *arrays: Spec) -> list[Spec]:
    largest = max(array.size for array in arrays)
    return [] if out.dtype == np.float64 else [Spec((min(largest, BLOCK),), np.float64)]


@backend.kernel(strided=False, scratch=_doubles)
def norm(out: Array, *arrays: Array, scratch: tuple[Array, ...]) -> None:
    total = 0.0
    for array in arrays:
        for (block,) in blocks(array):
            values = block
            if scratch:  # in double precision no square overflows
                values = scratch[0][: block.size]
                np.copyto(values, block)
            total += float(np.dot(values, values))
    out[...] = np.sqrt(total)
