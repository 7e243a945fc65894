"""Axes folded into one value each."""

from typing import Any

import numpy as np

from pareo.backends.vectorized.table import Array, backend, bits, flags, select
from pareo.spec import Spec


@backend.kernel()
def sum_(out: Array, a: Array, axis: Any, keepdims: bool) -> None:
    np.add.reduce(a, axis=axis, keepdims=keepdims, out=out)


@backend.kernel()
def mean(out: Array, a: Array, axis: Any, keepdims: bool) -> None:
    np.add.reduce(a, axis=axis, keepdims=keepdims, out=out)
    np.divide(out, a.size // max(out.size, 1), out=out)


@backend.kernel()
def max_(out: Array, a: Array, axis: Any, keepdims: bool) -> None:
    np.maximum.reduce(a, axis=axis, keepdims=keepdims, out=out)


def _shared(out: Spec, g: Spec, a: Spec, y: Spec, axis: Any) -> list[Spec]:
    return [y, flags(a), bits(a)]


@backend.kernel(in_place=(1,), scratch=_shared)
def max_gradient(
    out: Array, g: Array, a: Array, y: Array, axis: Any, scratch: tuple[Array, Array, Array]
) -> None:
    share, largest, work = scratch
    np.equal(a, y, out=largest)
    np.copyto(out, largest)
    np.add.reduce(out, axis=axis, keepdims=True, out=share)  # how many are equally large
    np.divide(g, share, out=share)
    np.copyto(out, share)
    select(out, out, largest, work)


def _folded_last(out: Spec, a: Spec, axis: int | None) -> list[Spec]:
    if axis is None or axis == a.ndim - 1:
        return []
    return [a.like((*a.shape[:axis], *a.shape[axis + 1 :], a.shape[axis]))]


@backend.kernel(strided=False, scratch=_folded_last)
def argmax(out: Array, a: Array, axis: int | None, scratch: tuple[Array, ...]) -> None:
    if scratch:  # NumPy would make this copy itself, out of the program's sight
        np.copyto(scratch[0], np.moveaxis(a, axis or 0, -1))
        np.argmax(scratch[0], axis=-1, out=out)
    else:
        np.argmax(a, axis=axis, out=out)
