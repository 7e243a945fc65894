"""Products of batches with weights that are too small for BLAS, from tiles of registers.

BLAS copies both factors before it multiplies. Here a tile reads them where they are; only weights
that are read across their rows are copied, some columns at a time. All matrices are C-contiguous
and given by their addresses. `sizes` are the rows and columns of the result and the length of the
sums.
"""

import numpy as np

from pareo.backends.compiled.kernels.reduction import ROWS as ROWS_AT_ONCE
from pareo.backends.compiled.runtime import registers
from pareo.backends.compiled.runtime.array_at import vector_at
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.product_tiles import (
    DEPTH,
    ONE,
    multiply_panel,
    tile_height,
    turn_rows,
)
from pareo.backends.compiled.runtime.register_products import WIDE, masked_product_tile

IS_WIDE = registers.HAS_AVX512  # elsewhere masked columns cost more, and this was not measured
CACHED = 1 << 18  # weights, which stay in the second cache
FEW = 1 << 15  # weights, for which BLAS does not pay whatever the batch
SHORT, MANY = 64, 128  # examples, for which it does not pay either
TURNED = 48  # columns of weights, at most, whose gradient is computed transposed
EXAMPLES = 256  # at a time, whose part of a tile stays in the fastest cache
_ONES = np.ones(1, np.float32)


def suits_narrow(batch: int, features: int) -> bool:
    """Whether a layer has so few features that tiles are faster for small batches, too."""
    return IS_WIDE and batch >= 4 and features <= 2 * WIDE


def is_faster_forward(batch: int, weights: int) -> bool:
    """Whether tiles are faster than BLAS, for batches that `small_batch` does not suit."""
    return IS_WIDE and weights <= (CACHED if batch <= MANY else FEW)


def is_faster_transposed(batch: int, weights: int) -> bool:
    """The same for `transposed`: BLAS reads weights across their rows as well."""
    return IS_WIDE and (weights <= CACHED or batch <= MANY)


def is_faster_update(batch: int, weights: int) -> bool:
    """The same for `update`."""
    return IS_WIDE and weights <= (CACHED if batch <= SHORT else FEW)


@jit
def forward(
    out: int, a: int, b: int, bias: int, sizes: tuple[int, int, int], rows: tuple[int, int],
    columns: tuple[int, int],
) -> None:  # fmt: skip
    """Some rows and columns of out = a @ b; bias is the address of a row to add, or 0."""
    _, n, depth = sizes
    left, right = columns
    for column in range(left, right, WIDE):
        wide = min(WIDE, right - column)
        for first in range(0, depth, DEPTH):
            count = min(DEPTH, depth - first)
            added = bias + 4 * column if bias and not first else 0
            multiply_panel(
                rows, wide, first, added, ONE, (out + 4 * column, 4 * n),
                (a + 4 * first, 4 * depth, 4), (b + 4 * (first * n + column), 4 * n), count,
            )  # fmt: skip


@jit
def partial_forward(
    out: int, a: int, b: int, sizes: tuple[int, int, int], low: int, high: int
) -> None:
    """out = columns low to high of a, times the same rows of b."""
    m, n, depth = sizes
    for column in range(0, n, WIDE):
        wide = min(WIDE, n - column)
        for first in range(low, high, DEPTH):
            multiply_panel(
                (0, m), wide, first - low, 0, ONE, (out + 4 * column, 4 * n),
                (a + 4 * first, 4 * depth, 4), (b + 4 * (first * n + column), 4 * n),
                min(DEPTH, high - first),
            )  # fmt: skip


@jit
def transposed(
    out: int, a: int, b: int, sizes: tuple[int, int, int], rows: tuple[int, int],
    columns: tuple[int, int],
) -> None:  # fmt: skip
    """Some rows and columns of out = a @ b.T, some rows of b at a time turned to columns."""
    _, n, depth = sizes
    left, right = columns
    panel = np.empty(min(DEPTH, depth) * WIDE, np.float32)
    into = panel.ctypes.data
    for column in range(left, right, WIDE):
        wide = min(WIDE, right - column)
        for first in range(0, depth, DEPTH):
            count = min(DEPTH, depth - first)
            turn_rows(into, b + 4 * (column * depth + first), 4 * depth, wide, count)
            multiply_panel(
                rows, wide, first, 0, ONE, (out + 4 * column, 4 * n),
                (a + 4 * first, 4 * depth, 4), (into, 4 * WIDE), count,
            )  # fmt: skip


@jit
def update(
    w: int, x: int, d: int, sizes: tuple[int, int, int], factor: float, rows: tuple[int, int],
    columns: tuple[int, int],
) -> None:  # fmt: skip
    """Some rows and columns of w += factor * x.T @ d."""
    m, n, depth = sizes
    left, right = columns
    if right - left <= TURNED and (right - left) % WIDE:
        _update_turned(w, x, d, sizes, factor, rows, columns)
        return
    for column in range(left, right, WIDE):
        wide = min(WIDE, right - column)
        for first in range(0, depth, DEPTH):
            multiply_panel(
                rows, wide, 1, 0, factor, (w + 4 * column, 4 * n), (x + 4 * first * m, 4, 4 * m),
                (d + 4 * (first * n + column), 4 * n), min(DEPTH, depth - first),
            )  # fmt: skip


@jit
def _update_turned(
    w: int, x: int, d: int, sizes: tuple[int, int, int], factor: float, rows: tuple[int, int],
    columns: tuple[int, int],
) -> None:  # fmt: skip
    """The same by tiles of (d.T @ x).T: their vectors are full where w has few columns."""
    m, n, depth = sizes
    (top, bottom), (left, right) = rows, columns
    count = right - left
    height = tile_height(count)
    tile = np.empty(TURNED * WIDE, np.float32)
    into = tile.ctypes.data
    for i in range(top, bottom, WIDE):
        wide = min(WIDE, bottom - i)
        for first in range(0, depth, EXAMPLES):
            for j in range(0, count, height):
                masked_product_tile(
                    min(height, count - j), wide, first, 0, factor,
                    (into + 4 * j * WIDE, 4 * WIDE),
                    (d + 4 * (first * n + left + j), 4, 0, 0, 4 * n),
                    (x + 4 * (first * m + i), 0, 0, 4 * m), (1, 1, min(EXAMPLES, depth - first)),
                )  # fmt: skip
        for k in range(wide):
            own = vector_at(w + 4 * ((i + k) * n + left), count)
            for j in range(count):
                own[j] += tile[j * WIDE + k]


@jit
def column_sums(out: int, a: int, m: int, n: int, lo: int, hi: int) -> None:
    """Columns lo to hi of the sums of a matrix over its rows, in float64 every so many rows."""
    if m <= ROWS_AT_ONCE:  # no array is needed, which would take as long as a small sum
        for column in range(lo, hi, WIDE):
            _add_rows(out + 4 * column, a + 4 * column, m, n, min(WIDE, hi - column))
        return
    part, totals = np.empty(WIDE, np.float32), np.empty(WIDE, np.float64)
    for column in range(lo, hi, WIDE):
        wide = min(WIDE, hi - column)
        totals[:] = 0
        for first in range(0, m, ROWS_AT_ONCE):
            rows = min(ROWS_AT_ONCE, m - first)
            _add_rows(part.ctypes.data, a + 4 * (first * n + column), rows, n, wide)
            for j in range(wide):
                totals[j] += part[j]
        sums = vector_at(out + 4 * column, wide)
        for j in range(wide):
            sums[j] = totals[j]


@jit
def _add_rows(out: int, a: int, rows: int, n: int, wide: int) -> None:
    """The sums of some columns over a few rows, each of n numbers: a product with a row of ones."""
    masked_product_tile(
        1, wide, 0, 0, ONE, (out, 0), (_ONES.ctypes.data, 0, 0, 0, 0), (a, 0, 0, 4 * n),
        (1, 1, rows),
    )  # fmt: skip
