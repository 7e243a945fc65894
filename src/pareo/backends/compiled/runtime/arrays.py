"""Small things done to whole arrays by compiled functions, so that a recording has them.

Where a kernel assigns to an array by NumPy, a recording does not notice (see `recording`).
"""

from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.runtime import recording
from pareo.backends.compiled.runtime.jit import jit, jit_in_order

MOST_AXES = 4


def _flat(a: Array) -> Array:
    """A contiguous array as one axis."""
    if not a.flags.c_contiguous:
        raise ValueError("the array is not contiguous")
    return a.reshape(-1)


@jit
def _fill(out: Array, number: Any) -> None:
    for i in range(out.size):
        out[i] = number


def fill(out: Array, number: float) -> None:
    """Set all elements of a contiguous array to a number."""
    _fill(_flat(out), out.dtype.type(number))


@jit
def _copy(out: Array, a: Array) -> None:
    """Copy (n, m, rows, columns), of which `a` may repeat some by strides of 0."""
    step = a.strides[3] // a.itemsize
    is_dense = out.strides[3] == out.itemsize
    for n in range(out.shape[0]):
        for m in range(out.shape[1]):
            for i in range(out.shape[2]):
                if is_dense and step == 1:
                    _copy_row(out[n, m, i], a[n, m, i])
                elif is_dense and step == 0 and out.shape[3]:
                    _fill_row(out[n, m, i], a[n, m, i, 0])
                else:
                    for j in range(out.shape[3]):
                        out[n, m, i, j] = a[n, m, i, j]


@jit
def _copy_row(out: Array, a: Array) -> None:
    """Copy a row of which both are contiguous, although their types do not say so."""
    into = np.asarray(out)
    for j in range(into.size):
        into[j] = a[j]


@jit
def _fill_row(out: Array, number: Any) -> None:
    for j in range(out.size):
        out[j] = number


def copy(out: Array, a: Array) -> None:
    """Copy an array, with broadcasting, between arrays of one dtype and any layout."""
    if out.ndim > MOST_AXES or out.dtype != a.dtype:
        recording.refuse("a copy of many axes, or between dtypes")
        out[...] = a
        return
    wide = np.broadcast_to(a, out.shape)
    lead = (np.newaxis,) * (MOST_AXES - out.ndim)
    _copy(out[lead], wide[lead])


@jit_in_order
def _add_parts(out: Array, sums: Array) -> None:
    for i in range(out.size):
        total = sums[0, i]
        for part in range(1, sums.shape[0]):
            total += sums[part, i]
        out[i] = total


def add_parts(out: Array, sums: Array, parts: int) -> None:
    """out = the sums of the first so many workers, added in their order.

    `out` may have fewer elements than the sums of a worker, which are its first.

    >>> out = np.empty(2, np.float32)
    >>> add_parts(out, np.array([[1.0, 2.0], [0.5, 0.0], [9.0, 9.0]]), 2)
    >>> out
    array([1.5, 2. ], dtype=float32)
    """
    flat = sums.reshape(len(sums), sums[0].size)
    _add_parts(_flat(out), flat[:parts])


@jit
def _add_to(out: Array, a: Array) -> None:
    for i in range(out.size):
        out[i] += a[i]


def add_to(out: Array, a: Array) -> None:
    """out += a, for contiguous arrays of one shape."""
    _add_to(_flat(out), _flat(a))


@jit
def is_finite(a: Array) -> bool:
    """Whether a flat array has neither NaN nor infinities."""
    total = a.dtype.type(0)
    for i in range(a.size):
        total += a.dtype.type(0) * a[i]
    return bool(total == 0)
