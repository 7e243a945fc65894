"""Matrix products, by BLAS or by loops where BLAS is slow, split over the threads."""

import numpy as np

from pareo.array import Array
from pareo.backends import blas
from pareo.backends.compiled.kernels import skinny_matmul
from pareo.backends.compiled.runtime import recording
from pareo.backends.compiled.runtime.gemm import product, subtract
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split

# With so few rows, a product reads the other matrix once. BLAS does that at half the memory's
# speed, because it is built to reuse what it reads.
FEW_ROWS = 2
FEW_ROWS_TRANSPOSED = 4  # the other matrix is transposed, which is BLAS's slowest case
LARGE = 1 << 16
MIN_PRODUCTS = 1 << 20  # multiplications that take as long as waking a worker
COLUMNS = 2048  # of a row at a time, so that the sums stay in the fastest cache


@jit
def _add_row(out: Array, row: Array, factor: float) -> None:
    for j in range(row.size):
        out[j] += factor * row[j]


@jit
def _few_rows(out: Array, a: Array, b: Array, lo: int, hi: int) -> None:
    """Columns lo to hi of out = a @ b for few rows of a, reading b by rows."""
    for start in range(lo, hi, COLUMNS):
        stop = min(start + COLUMNS, hi)
        out[:, start:stop] = 0
        for k in range(b.shape[0]):
            row = b[k, start:stop]
            for i in range(out.shape[0]):
                _add_row(out[i, start:stop], row, a[i, k])


@jit
def _few_rows_transposed(out: Array, a: Array, b: Array) -> None:
    """out = a @ b.T for few rows of a, reading b by rows."""
    for j in range(b.shape[0]):
        for i in range(a.shape[0]):
            total = a.dtype.type(0)
            for k in range(b.shape[1]):
                total += a[i, k] * b[j, k]
            out[i, j] = total


@jit
def _few_rows_update(out: Array, a: Array, b: Array, factor: Array) -> None:
    """out -= factor * a.T @ b for few rows of a and b, and a number."""
    alpha = -factor[0]
    for i in range(out.shape[0]):
        for n in range(a.shape[0]):
            _add_row(out[i], b[n], alpha * a[n, i])


def _contiguous(*arrays: Array) -> bool:
    return all(a.flags.c_contiguous for a in arrays)


def matmul(out: Array, a: Array, b: Array) -> None:
    """out = a @ b for matrices or stacks of them, in the way that suits their shapes."""
    if a.ndim == 2 == b.ndim and a.shape[0] <= FEW_ROWS_TRANSPOSED and b.size >= LARGE:
        if a.shape[0] <= FEW_ROWS and _contiguous(a, b):
            split(lambda lo, hi: _few_rows(out, a, b, lo, hi), b.shape[1], 64)
            return
        if _contiguous(a, b.T):
            split(lambda lo, hi: _few_rows_transposed(out[:, lo:hi], a, b.T[lo:hi]), b.shape[1], 64)
            return
    if a.ndim == 2 == b.ndim and _contiguous(a, b.T) and skinny_matmul.suits(a, b.T):
        split(
            lambda lo, hi: skinny_matmul.matmul_transposed(
                out[:, 2 * lo : 2 * hi], a, b.T[2 * lo : 2 * hi]
            ),
            b.shape[1] // 2,
            32,
        )
        return
    # One thread of BLAS for each of ours: BLAS's own threads spin on after a product, on cores that
    # the next kernel needs.
    blas.threads(1)
    if out.ndim > 2:
        recording.refuse("products of stacks of matrices, which are left to NumPy")
        split(
            lambda lo, hi: np.matmul(_part(a, out, lo, hi), _part(b, out, lo, hi), out=out[lo:hi]),
            out.shape[0],
            _min_rows(out, a),
        )
    elif out.shape[0] >= out.shape[1]:
        least = _min_rows(out, a)
        split(lambda lo, hi: product(out[lo:hi], a[lo:hi], b), out.shape[0], least)
    else:
        least = _min_rows(out.T, a)
        split(lambda lo, hi: product(out[:, lo:hi], a, b[:, lo:hi]), out.shape[1], least)


def _min_rows(out: Array, a: Array) -> int:
    """The least number of rows of a product that is worth a worker."""
    return max(1, MIN_PRODUCTS * out.shape[0] // max(1, out.size * a.shape[-1]))


def _part(a: Array, out: Array, lo: int, hi: int) -> Array:
    """The matrices of a stack that items lo to hi of a stacked product need, with broadcasting."""
    return a[lo:hi] if a.ndim == out.ndim and a.shape[0] > 1 else a


def subtract_product(out: Array, a: Array, b: Array, factor: Array) -> None:
    """out -= factor * a @ b, for matrices and a number; the product is not stored."""
    if a.shape[1] <= FEW_ROWS and out.size >= LARGE and _contiguous(a.T, b):
        by = factor.reshape(-1)
        split(lambda lo, hi: _few_rows_update(out[lo:hi], a.T[:, lo:hi], b, by), out.shape[0], 64)
        return
    blas.threads(1)
    split(
        lambda lo, hi: subtract(out[lo:hi], a[lo:hi], b, factor),
        out.shape[0],
        _min_rows(out, a),
    )
