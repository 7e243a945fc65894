"""Rows by index, as embeddings take them."""

from pareo.array import Array
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split
from pareo.operators.linear import check_index

kernel = backend.kernel


def _rows(a: Array, count: int) -> Array:
    """a as `count` rows; all sizes are given, because NumPy cannot infer one of nothing."""
    return a.reshape(count, a.size // count if count else 0)


@jit
def _take(out: Array, a: Array, index: Array) -> None:
    for i in range(index.size):
        out[i] = a[index[i]]


@kernel(strided=False)
def take(out: Array, a: Array, index: Array) -> None:
    check_index("take", index, a.shape[0])
    rows, target, flat = _rows(a, a.shape[0]), _rows(out, index.size), index.reshape(-1)
    least = max(1, GRAIN // max(1, rows.shape[1]))
    split(lambda lo, hi: _take(target[lo:hi], rows, flat[lo:hi]), flat.size, least)


@jit
def _take_gradient(out: Array, g: Array, index: Array) -> None:
    """Columns of all rows; the rows of g are added in their order."""
    out[:] = 0
    for i in range(index.size):
        row = index[i]
        for j in range(out.shape[1]):
            out[row, j] += g[i, j]


@kernel(strided=False)
def take_gradient(out: Array, g: Array, index: Array, size: int) -> None:
    check_index("take_gradient", index, size)
    target, rows, flat = _rows(out, size), _rows(g, index.size), index.reshape(-1)
    least = max(1, GRAIN // max(1, target.shape[0] + flat.size))
    split(
        lambda lo, hi: _take_gradient(target[:, lo:hi], rows[:, lo:hi], flat),
        target.shape[1],
        least,
    )
