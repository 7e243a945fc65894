"""Matrix products, biases, and the same elements in another order."""

from collections import defaultdict
from typing import Any

import numpy as np

from pareo.backends.sequential.numbers import Index, at, backend, store
from pareo.operators.linear import check_index


@backend.kernel()
def dot(out: Any, a: Any, b: Any) -> None:
    for *leading, i, j in np.ndindex(out.shape):
        total = 0.0
        for k in range(a.shape[-1]):
            total += at(a, (*leading, i, k)) * at(b, (*leading, k, j))
        out[(*leading, i, j)] = total


@backend.kernel()
def transpose(out: Any, a: Any, *, axes: tuple[int, ...]) -> None:
    for i in np.ndindex(a.shape):
        out[tuple(i[axis] for axis in axes)] = a[i]


@backend.kernel()
def reshape(out: Any, a: Any, *, shape: tuple[int, ...]) -> None:
    for new, old in zip(np.ndindex(shape), np.ndindex(a.shape), strict=True):
        out[new] = a[old]


@backend.kernel(in_place=True)
def add_bias(out: Any, a: Any, b: Any) -> None:
    for i in np.ndindex(out.shape):
        out[i] = float(a[i]) + float(b[i[1]])


@backend.kernel()
def concat(out: Any, *arrays: Any, axis: int) -> None:
    start = 0
    for array in arrays:
        for i in np.ndindex(array.shape):
            out[(*i[:axis], start + i[axis], *i[axis + 1 :])] = array[i]
        start += array.shape[axis]


@backend.kernel()
def part(out: Any, a: Any, *, axis: int, between: tuple[int, int]) -> None:
    for i in np.ndindex(out.shape):
        out[i] = a[(*i[:axis], between[0] + i[axis], *i[axis + 1 :])]


@backend.kernel()
def part_gradient(out: Any, g: Any, *, axis: int, between: tuple[int, int], size: int) -> None:
    start, stop = between
    for i in np.ndindex(out.shape):
        inside = start <= i[axis] < stop
        out[i] = g[(*i[:axis], i[axis] - start, *i[axis + 1 :])] if inside else 0.0


@backend.kernel()
def pad(out: Any, a: Any, *, widths: tuple[tuple[int, int], ...], value: float) -> None:
    for i in np.ndindex(out.shape):
        source = tuple(place - before for place, (before, _) in zip(i, widths, strict=True))
        inside = all(0 <= place < size for place, size in zip(source, a.shape, strict=True))
        out[i] = a[source] if inside else value


@backend.kernel()
def split(out: Any, a: Any, *, sizes: tuple[int, ...], axis: int) -> None:
    start = 0
    for part in out if isinstance(out, tuple) else (out,):
        for i in np.ndindex(part.shape):
            part[i] = a[(*i[:axis], start + i[axis], *i[axis + 1 :])]
        start += part.shape[axis]


@backend.kernel()
def take(out: Any, a: Any, index: Any) -> None:
    check_index("take", index, a.shape[0])
    for i in np.ndindex(out.shape):
        out[i] = a[(int(index[i[: index.ndim]]), *i[index.ndim :])]


@backend.kernel()
def take_gradient(out: Any, g: Any, index: Any, *, size: int) -> None:
    check_index("take_gradient", index, size)
    sums: dict[Index, float] = defaultdict(float)
    for i in np.ndindex(g.shape):
        sums[(int(index[i[: index.ndim]]), *i[index.ndim :])] += float(g[i])
    store(out, sums)
