"""Products of a small batch with weights, from the tiles of `tiles`.

All matrices are C-contiguous and given by their addresses. `sizes` are the rows and columns of the
result and the length of the sums.
"""

import numpy as np

from pareo.backends.compiled.loops.matrices.tiles import (
    COLUMNS_AT_ONCE,
    PANEL_VECTORS,
    ROWS,
    few_tile,
    forward_tile,
    panel,
    transposed_tile,
    update_tile,
)
from pareo.backends.compiled.runtime import registers
from pareo.backends.compiled.runtime.array_at import matrix_at
from pareo.backends.compiled.runtime.jit import jit

LANES = registers.LANES
WIDE = 4 * LANES  # columns of the largest tile
CACHED = 1 << 17  # weights, which stay in the second cache
PANEL = 8  # rows of weights at a time, if they are not cached
PANEL_COLUMNS = PANEL_VECTORS * LANES
NEAR = 1 << 12  # weights, which stay in the fastest cache
COLUMNS = 1024  # of a panel, which stays in the fastest cache
MASKED = registers.IS_X86  # whether the last columns are a vector of which some lanes are used
NARROW = LANES if MASKED else 1  # columns of the smallest tile, at most
HAS_FEW = registers.COUNT == 32  # whether registers hold a tile of all examples of a few
_NONE = np.float32(0)

_forward_wide, _forward_vector = forward_tile(4, LANES), forward_tile(1, LANES)
_forward_narrow = forward_tile(1, NARROW, MASKED)
_panel = panel(PANEL)
_dots, _dot = transposed_tile(COLUMNS_AT_ONCE), transposed_tile(1)
_update_wide, _update_vector = update_tile(4, LANES), update_tile(1, LANES)
_update_narrow = update_tile(1, NARROW, MASKED)
_few_wide, _few_vector = few_tile(4, LANES), few_tile(1, LANES)


def is_faster_forward(batch: int, weights: int) -> bool:
    """Whether a batch is small enough for `forward`; for larger ones BLAS is faster."""
    if registers.HAS_AVX512:  # otherwise `tile_products` are faster
        return batch <= 4
    return batch <= (16 if weights <= CACHED else 8)


def is_faster_transposed(batch: int, weights: int) -> bool:
    """The same for `transposed`: on x86-64, BLAS copies the weights row by row."""
    return batch <= 32 if registers.IS_X86 else is_faster_update(batch, weights)


def is_faster_update(batch: int, weights: int) -> bool:
    """The same for `update`."""
    if registers.HAS_AVX512 and weights <= 2 * CACHED:
        return batch <= 31
    return batch <= (16 if weights <= 4 * CACHED else 12)


@jit
def _columns(left: int) -> int:
    """The columns of the next tile, if so many are left."""
    if left >= WIDE:
        return WIDE
    return LANES if left >= LANES else min(left, NARROW)


@jit
def _forward_panels(out: int, x: int, w: int, m: int, n: int, depth: int, lo: int, hi: int) -> None:
    """Columns lo to hi of out += x @ w, for as many rows of w as are whole panels."""
    whole = depth - depth % PANEL
    for start in range(lo, hi, COLUMNS):
        groups = (min(start + COLUMNS, hi) - start) // PANEL_COLUMNS
        for k in range(0, whole, PANEL):
            weights = w + 4 * (k * n + start)
            for i in range(0, m, ROWS):
                rows = min(ROWS, m - i)
                place, own = out + 4 * (n * i + start), x + 4 * (depth * i + k)
                _panel(rows, 0, place, 4 * n, own, 4 * depth, weights, 4 * n, groups, _NONE)


@jit
def _forward_tiles(
    out: int, x: int, w: int, m: int, n: int, depth: int, first: int, lo: int, hi: int
) -> None:
    """Columns lo to hi of out += x @ w, for the rows of w from the first on."""
    count = depth - first
    at = lo
    while at < hi:
        columns = _columns(hi - at)
        weights = w + 4 * (first * n + at)
        for i in range(0, m, ROWS):
            rows = min(ROWS, m - i)
            place, own = out + 4 * (n * i + at), x + 4 * (depth * i + first)
            if columns == WIDE:
                _forward_wide(rows, 0, place, 4 * n, own, 4 * depth, weights, 4 * n, count, _NONE)
            elif columns == LANES:
                _forward_vector(rows, 0, place, 4 * n, own, 4 * depth, weights, 4 * n, count, _NONE)
            else:
                _forward_narrow(
                    rows, columns, place, 4 * n, own, 4 * depth, weights, 4 * n, count, _NONE
                )
        at += columns


@jit
def _clear(out: int, m: int, n: int, lo: int, hi: int) -> None:
    y = matrix_at(out, m, n)
    for i in range(m):
        row = y[i, lo:hi]
        for j in range(row.size):
            row[j] = 0


@jit
def forward_uncached(
    out: int, x: int, w: int, sizes: tuple[int, int, int], lo: int, hi: int
) -> None:
    """Columns lo to hi of out = x @ w for many weights, of which few rows at a time are read."""
    m, n, depth = sizes
    _clear(out, m, n, lo, hi)
    last = hi - (hi - lo) % PANEL_COLUMNS
    _forward_panels(out, x, w, m, n, depth, lo, last)
    _forward_tiles(out, x, w, m, n, depth, depth - depth % PANEL, lo, last)
    _forward_tiles(out, x, w, m, n, depth, 0, last, hi)


@jit
def forward(out: int, x: int, w: int, sizes: tuple[int, int, int], lo: int, hi: int) -> None:
    """Columns lo to hi of out = x @ w."""
    m, n, depth = sizes
    if depth * (hi - lo) > CACHED:
        forward_uncached(out, x, w, sizes, lo, hi)
        return
    _clear(out, m, n, lo, hi)
    _forward_tiles(out, x, w, m, n, depth, 0, lo, hi)


@jit
def _transposed_columns(
    out: int, d: int, w: int, m: int, n: int, depth: int, lo: int, hi: int
) -> None:
    """Columns lo to hi of all rows of out = d @ w.T."""
    at = lo
    while at < hi:
        columns = COLUMNS_AT_ONCE if at + COLUMNS_AT_ONCE <= hi else 1
        weights = w + 4 * depth * at
        for i in range(0, m, ROWS):
            rows = min(ROWS, m - i)
            place, own = out + 4 * (n * i + at), d + 4 * depth * i
            if columns == COLUMNS_AT_ONCE:
                _dots(rows, 0, place, 4 * n, own, 4 * depth, weights, 4 * depth, depth, _NONE)
            else:
                _dot(rows, 0, place, 4 * n, own, 4 * depth, weights, 4 * depth, depth, _NONE)
        at += columns


@jit
def transposed(out: int, d: int, w: int, sizes: tuple[int, int, int], lo: int, hi: int) -> None:
    """Columns lo to hi of out = d @ w.T."""
    m, n, depth = sizes
    _transposed_columns(out, d, w, m, n, depth, lo, hi)


@jit
def _update_rows(
    w: int, x: int, d: int, count: int, n: int, m: int, factor: float, at: int, rows: int
) -> None:
    """A few rows from `at` on of w (count, n) += factor * x.T @ d."""
    own = x + 4 * at
    j = 0
    while j < n:
        columns = _columns(n - j)
        place, given = w + 4 * (n * at + j), d + 4 * j
        if columns == WIDE:
            _update_wide(rows, 0, place, 4 * n, own, 4 * count, given, 4 * n, m, factor)
        elif columns == LANES:
            _update_vector(rows, 0, place, 4 * n, own, 4 * count, given, 4 * n, m, factor)
        else:
            _update_narrow(rows, columns, place, 4 * n, own, 4 * count, given, 4 * n, m, factor)
        j += columns


@jit
def _update_few(
    w: int, x: int, d: int, count: int, n: int, m: int, factor: float, at: int, rows: int
) -> None:
    """The same for any number of rows, if there are few examples."""
    own = x + 4 * at
    j = 0
    while j < n:
        columns = _columns(n - j)
        place, given = w + 4 * (n * at + j), d + 4 * j
        if columns == WIDE:
            _few_wide(m, 0, place, 4 * n, own, 4 * count, given, 4 * n, rows, factor)
        elif columns == LANES:
            _few_vector(m, 0, place, 4 * n, own, 4 * count, given, 4 * n, rows, factor)
        else:  # a processor waits to read a row that shares a vector with one just written
            for i in range(0, rows, ROWS):
                _update_narrow(
                    min(ROWS, rows - i), columns, place + 4 * n * i, 4 * n, own + 4 * i, 4 * count,
                    given, 4 * n, m, factor,
                )  # fmt: skip
        j += columns


@jit
def _near_rows(n: int) -> int:
    """Rows of weights that stay in the fastest cache."""
    return max(1, NEAR // (ROWS * n)) * ROWS


@jit
def update(
    w: int, x: int, d: int, sizes: tuple[int, int, int], factor: float, lo: int, hi: int
) -> None:
    """Rows lo to hi of w += factor * x.T @ d."""
    count, n, m = sizes
    if HAS_FEW and m <= ROWS:
        rows = _near_rows(n)
        for at in range(lo, hi, rows):
            _update_few(w, x, d, count, n, m, factor, at, min(rows, hi - at))
        return
    for at in range(lo, hi, ROWS):
        _update_rows(w, x, d, count, n, m, factor, at, min(ROWS, hi - at))


@jit
def backward(
    out: int, w: int, x: int, d: int, sizes: tuple[int, int, int], factor: float, lo: int, hi: int
) -> None:
    """Columns lo to hi of out = d @ w.T, and rows lo to hi of w += factor * x.T @ d.

    Some rows of weights at a time are updated while they are in the fastest cache.
    """
    m, count, n = sizes
    rows = _near_rows(n)
    for at in range(lo, hi, rows):
        end = min(at + rows, hi)
        _transposed_columns(out, d, w, m, count, n, at, end)
        update(w, x, d, (count, n, m), factor, at, end)
