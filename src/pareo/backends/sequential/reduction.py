"""Reductions of axes."""

import math
from collections.abc import Collection, Iterator
from itertools import product
from typing import Any

import numpy as np

from pareo.backends.sequential.numbers import Index, backend, beats, divide, sqrt


def folds(shape: Index, axes: Collection[int]) -> Iterator[list[Index]]:
    """For each result, in order, the indices of the elements that it is computed from.

    >>> list(folds((2, 3), axes=[1]))
    [[(0, 0), (0, 1), (0, 2)], [(1, 0), (1, 1), (1, 2)]]
    """
    kept = [[0] if axis in axes else range(size) for axis, size in enumerate(shape)]
    for first in product(*kept):
        yield list(
            product(*(range(shape[axis]) if axis in axes else [i] for axis, i in enumerate(first)))
        )


@backend.kernel()
def sum_(out: Any, a: Any, *, axis: Index, keepdims: bool) -> None:
    results = out.reshape(-1)
    for number, indices in enumerate(folds(a.shape, axis)):
        total = 0.0
        for i in indices:
            total += float(a[i])
        results[number] = total


@backend.kernel()
def mean(out: Any, a: Any, *, axis: Index, keepdims: bool) -> None:
    results = out.reshape(-1)
    for number, indices in enumerate(folds(a.shape, axis)):
        total = 0.0
        for i in indices:
            total += float(a[i])
        results[number] = total / len(indices)


def first_largest(a: Any, indices: list[Index]) -> int:
    """The position, among the indices, of the first largest element, or of the first NaN."""
    found = 0
    for position, i in enumerate(indices):
        if beats(float(a[i]), float(a[indices[found]])):
            found = position
    return found


@backend.kernel()
def max_(out: Any, a: Any, *, axis: Index, keepdims: bool) -> None:
    results = out.reshape(-1)
    for number, indices in enumerate(folds(a.shape, axis)):
        results[number] = a[indices[first_largest(a, indices)]]


@backend.kernel()
def max_gradient(out: Any, g: Any, a: Any, y: Any, *, axis: Index) -> None:
    for largest, indices in zip(folds(y.shape, ()), folds(a.shape, axis), strict=True):
        top = float(y[largest[0]])
        equal = 0
        for i in indices:
            if float(a[i]) == top:
                equal += 1
        share = divide(float(g[largest[0]]), equal)
        for i in indices:
            given = share if float(a[i]) == top else 0.0
            out[i] = top if math.isnan(top) else given


@backend.kernel()
def argmax(out: Any, a: Any, *, axis: int | None) -> None:
    axes = range(a.ndim) if axis is None else [axis]
    results = out.reshape(-1)
    for number, indices in enumerate(folds(a.shape, axes)):
        results[number] = first_largest(a, indices)


@backend.kernel()
def norm(out: Any, *arrays: Any) -> None:
    total = 0.0
    for array in arrays:
        for i in np.ndindex(array.shape):
            total += float(array[i]) * float(array[i])
    out[()] = sqrt(total)
