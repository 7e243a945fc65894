"""Products of a small batch with weights, from the tiles of `tiles`.

All matrices are C-contiguous and given by their addresses. `sizes` are the rows and columns of the
result and the length of the sums.
"""

from pareo.backends.compiled.loops.matrices.tiles import (
    forward_tile,
    panel,
    transposed_tile,
    update_tile,
)
from pareo.backends.compiled.runtime.array_at import matrix_at
from pareo.backends.compiled.runtime.jit import jit

ROWS, WIDE = 4, 16  # rows and columns of the largest tile
CACHED = 1 << 17  # weights, which stay in the second cache
PANEL = 8  # rows of weights at a time, if they are not cached, and columns
COLUMNS = 1024  # of a panel, which stays in the fastest cache
_wide_1, _wide_2, _wide_3, _wide_4 = (forward_tile(rows, 4, 4) for rows in range(1, 5))
_four_1, _four_2, _four_3, _four_4 = (forward_tile(rows, 1, 4) for rows in range(1, 5))
_one_1, _one_2, _one_3, _one_4 = (forward_tile(rows, 1, 1) for rows in range(1, 5))
_panel_1, _panel_2, _panel_3, _panel_4 = (panel(rows, PANEL, 2) for rows in range(1, 5))
_dots_1, _dots_2, _dots_3, _dots_4 = (transposed_tile(rows, 4) for rows in range(1, 5))
_dot_1, _dot_2, _dot_3, _dot_4 = (transposed_tile(rows, 1) for rows in range(1, 5))
_update_wide, _update_four, _update_one = (
    update_tile(4, *size) for size in ((4, 4), (1, 4), (1, 1))
)
_row_wide, _row_four, _row_one = (update_tile(1, *size) for size in ((4, 4), (1, 4), (1, 1)))


def is_faster_forward(batch: int, weights: int) -> bool:
    """Whether a batch is small enough for `forward`; for larger ones BLAS is faster."""
    return batch <= (16 if weights <= CACHED else 8)


def is_faster_backward(batch: int, weights: int) -> bool:
    """The same for the other functions."""
    return batch <= (16 if weights <= 4 * CACHED else 12)


@jit
def _forward_columns(
    out: int, x: int, w: int, m: int, n: int, depth: int, count: int, at: int, columns: int
) -> None:
    """Columns from `at` on, 16, 4 or 1, of all rows of out += x @ w, for `count` rows of w."""
    into, weights = out + 4 * at, w + 4 * at
    for i in range(0, m, ROWS):
        rows = min(ROWS, m - i)
        place, own = into + 4 * n * i, x + 4 * depth * i
        if columns == WIDE:
            if rows == 4:
                _wide_4(place, 4 * n, own, 4 * depth, weights, 4 * n, count)
            elif rows == 3:
                _wide_3(place, 4 * n, own, 4 * depth, weights, 4 * n, count)
            elif rows == 2:
                _wide_2(place, 4 * n, own, 4 * depth, weights, 4 * n, count)
            else:
                _wide_1(place, 4 * n, own, 4 * depth, weights, 4 * n, count)
        elif columns == 4:
            if rows == 4:
                _four_4(place, 4 * n, own, 4 * depth, weights, 4 * n, count)
            elif rows == 3:
                _four_3(place, 4 * n, own, 4 * depth, weights, 4 * n, count)
            elif rows == 2:
                _four_2(place, 4 * n, own, 4 * depth, weights, 4 * n, count)
            else:
                _four_1(place, 4 * n, own, 4 * depth, weights, 4 * n, count)
        elif rows == 4:
            _one_4(place, 4 * n, own, 4 * depth, weights, 4 * n, count)
        elif rows == 3:
            _one_3(place, 4 * n, own, 4 * depth, weights, 4 * n, count)
        elif rows == 2:
            _one_2(place, 4 * n, own, 4 * depth, weights, 4 * n, count)
        else:
            _one_1(place, 4 * n, own, 4 * depth, weights, 4 * n, count)


@jit
def _forward_panels(out: int, x: int, w: int, m: int, n: int, depth: int, lo: int, hi: int) -> None:
    """Columns lo to hi of out += x @ w, for as many rows of w as are whole panels."""
    whole = depth - depth % PANEL
    for start in range(lo, hi, COLUMNS):
        groups = (min(start + COLUMNS, hi) - start) // PANEL
        for k in range(0, whole, PANEL):
            weights = w + 4 * (k * n + start)
            for i in range(0, m, ROWS):
                rows = min(ROWS, m - i)
                place, own = out + 4 * (n * i + start), x + 4 * (depth * i + k)
                if rows == 4:
                    _panel_4(place, 4 * n, own, 4 * depth, weights, 4 * n, groups)
                elif rows == 3:
                    _panel_3(place, 4 * n, own, 4 * depth, weights, 4 * n, groups)
                elif rows == 2:
                    _panel_2(place, 4 * n, own, 4 * depth, weights, 4 * n, groups)
                else:
                    _panel_1(place, 4 * n, own, 4 * depth, weights, 4 * n, groups)


@jit
def _forward_tiles(
    out: int, x: int, w: int, m: int, n: int, depth: int, first: int, lo: int, hi: int
) -> None:
    """Columns lo to hi of out += x @ w, for the rows of w from the first on."""
    at = lo
    while at < hi:
        columns = WIDE if at + WIDE <= hi else 4 if at + 4 <= hi else 1
        own, weights, count = x + 4 * first, w + 4 * first * n, depth - first
        _forward_columns(out, own, weights, m, n, depth, count, at, columns)
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
    last = hi - (hi - lo) % PANEL
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
    out: int, d: int, w: int, m: int, n: int, depth: int, at: int, columns: int
) -> None:
    """Columns from `at` on, 4 or 1, of all rows."""
    into, weights = out + 4 * at, w + 4 * depth * at
    for i in range(0, m, ROWS):
        rows = min(ROWS, m - i)
        place, own = into + 4 * n * i, d + 4 * depth * i
        if columns == 4:
            if rows == 4:
                _dots_4(place, 4 * n, own, 4 * depth, weights, 4 * depth, depth)
            elif rows == 3:
                _dots_3(place, 4 * n, own, 4 * depth, weights, 4 * depth, depth)
            elif rows == 2:
                _dots_2(place, 4 * n, own, 4 * depth, weights, 4 * depth, depth)
            else:
                _dots_1(place, 4 * n, own, 4 * depth, weights, 4 * depth, depth)
        elif rows == 4:
            _dot_4(place, 4 * n, own, 4 * depth, weights, 4 * depth, depth)
        elif rows == 3:
            _dot_3(place, 4 * n, own, 4 * depth, weights, 4 * depth, depth)
        elif rows == 2:
            _dot_2(place, 4 * n, own, 4 * depth, weights, 4 * depth, depth)
        else:
            _dot_1(place, 4 * n, own, 4 * depth, weights, 4 * depth, depth)


@jit
def transposed(out: int, d: int, w: int, sizes: tuple[int, int, int], lo: int, hi: int) -> None:
    """Columns lo to hi of out = d @ w.T."""
    m, n, depth = sizes
    at = lo
    while at < hi:
        columns = 4 if at + 4 <= hi else 1
        _transposed_columns(out, d, w, m, n, depth, at, columns)
        at += columns


@jit
def _update_rows(
    w: int, x: int, d: int, count: int, n: int, m: int, factor: float, at: int, rows: int
) -> None:
    """Rows from `at` on, 4 or 1, of w (count, n) += factor * x.T @ d."""
    own = x + 4 * at
    j = 0
    while j < n:
        columns = WIDE if j + WIDE <= n else 4 if j + 4 <= n else 1
        place, given = w + 4 * (n * at + j), d + 4 * j
        if rows == 4:
            if columns == WIDE:
                _update_wide(place, 4 * n, own, 4 * count, given, 4 * n, m, factor)
            elif columns == 4:
                _update_four(place, 4 * n, own, 4 * count, given, 4 * n, m, factor)
            else:
                _update_one(place, 4 * n, own, 4 * count, given, 4 * n, m, factor)
        elif columns == WIDE:
            _row_wide(place, 4 * n, own, 4 * count, given, 4 * n, m, factor)
        elif columns == 4:
            _row_four(place, 4 * n, own, 4 * count, given, 4 * n, m, factor)
        else:
            _row_one(place, 4 * n, own, 4 * count, given, 4 * n, m, factor)
        j += columns


@jit
def update(
    w: int, x: int, d: int, sizes: tuple[int, int, int], factor: float, lo: int, hi: int
) -> None:
    """Rows lo to hi of w += factor * x.T @ d."""
    count, n, m = sizes
    at = lo
    while at < hi:
        rows = 4 if at + 4 <= hi else 1
        _update_rows(w, x, d, count, n, m, factor, at, rows)
        at += rows


@jit
def backward(
    out: int, w: int, x: int, d: int, sizes: tuple[int, int, int], factor: float, lo: int, hi: int
) -> None:
    """Columns lo to hi of out = d @ w.T, and rows lo to hi of w += factor * x.T @ d.

    Each row of weights is updated while it is in the fastest cache.
    """
    m, count, n = sizes
    at = lo
    while at < hi:
        rows = 4 if at + 4 <= hi else 1
        _transposed_columns(out, d, w, m, count, n, at, rows)
        _update_rows(w, x, d, count, n, m, factor, at, rows)
        at += rows
