"""Matrix products of a part of the result, by BLAS, or by loops where there are few rows.

With few rows a product reads the weights once, and BLAS's copy of them into another order takes
longer than the product. The backward pass reads and updates each row of weights while it is in the
fastest cache. All matrices are C-contiguous and given by their addresses; float32 only.
"""

from pareo.array import Array
from pareo.backends.compiled.runtime.array_at import matrix_at
from pareo.backends.compiled.runtime.gemm import call_gemm
from pareo.backends.compiled.runtime.jit import jit

FEW_ROWS = 3  # with more, BLAS is faster
COLUMNS = 2048  # of a row at a time, so that the sums stay in the fastest cache
NO_TRANSPOSE, TRANSPOSE = 111, 112


@jit
def blas_product(
    function: int, out: int, a: int, b: int, transpose_a: bool, transpose_b: bool,
    sizes: tuple[int, int, int], alpha: float, beta: float,
    rows: tuple[int, int], columns: tuple[int, int],
) -> None:  # fmt: skip
    """Some rows and columns of out = alpha * a @ b + beta * out, a or b transposed on request.

    `sizes` are the rows and columns of the whole result, and the length of the sums.
    """
    m, n, k = sizes
    (top, bottom), (left, right) = rows, columns
    if top == bottom or left == right:
        return
    row_a, row_b = (m if transpose_a else k), (k if transpose_b else n)
    first_a = a + 4 * top * (1 if transpose_a else row_a)
    first_b = b + 4 * left * (row_b if transpose_b else 1)
    call_gemm(
        function, TRANSPOSE if transpose_a else NO_TRANSPOSE,
        TRANSPOSE if transpose_b else NO_TRANSPOSE, bottom - top, right - left, k, alpha,
        first_a, row_a, first_b, row_b, beta, out + 4 * (top * n + left), n,
    )  # fmt: skip


@jit
def _add_row(out: Array, row: Array, factor: float) -> None:
    for j in range(out.size):
        out[j] += factor * row[j]


@jit
def _add_four_rows(
    out: Array, rows: tuple[Array, Array, Array, Array], factors: tuple[float, float, float, float]
) -> None:
    first, second, third, fourth = rows
    p, q, r, s = factors
    for j in range(out.size):
        out[j] += p * first[j] + q * second[j] + (r * third[j] + s * fourth[j])


@jit
def few_rows(out: int, x: int, w: int, sizes: tuple[int, int, int], lo: int, hi: int) -> None:
    """Columns lo to hi of out = x @ w for few rows of x; the weights are read by rows."""
    m, n, depth = sizes
    y, given, weights = matrix_at(out, m, n), matrix_at(x, m, depth), matrix_at(w, depth, n)
    whole = depth - depth % 4
    for start in range(lo, hi, COLUMNS):
        stop = min(start + COLUMNS, hi)
        for i in range(m):
            row = y[i, start:stop]
            for j in range(row.size):
                row[j] = 0
        for k in range(0, whole, 4):
            four = (
                weights[k, start:stop], weights[k + 1, start:stop],
                weights[k + 2, start:stop], weights[k + 3, start:stop],
            )  # fmt: skip
            for i in range(m):
                factors = given[i, k], given[i, k + 1], given[i, k + 2], given[i, k + 3]
                _add_four_rows(y[i, start:stop], four, factors)
        for k in range(whole, depth):
            for i in range(m):
                _add_row(y[i, start:stop], weights[k, start:stop], given[i, k])


@jit
def _dot(a: Array, b: Array) -> float:
    total = a.dtype.type(0)
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@jit
def _two_dots(a: Array, b: Array, c: Array) -> tuple[float, float]:
    """The products of c with a and with b."""
    first, second = a.dtype.type(0), a.dtype.type(0)
    for j in range(c.size):
        first += a[j] * c[j]
        second += b[j] * c[j]
    return first, second


@jit
def _add_two_rows(out: Array, a: Array, b: Array, p: float, q: float) -> None:
    for j in range(out.size):
        out[j] += p * a[j] + q * b[j]


@jit
def _update_row(w: Array, x: Array, d: Array, r: int, factor: float) -> None:
    """w += factor times the sum of x[i, r] * d[i]."""
    whole = d.shape[0] - d.shape[0] % 2
    for i in range(0, whole, 2):
        _add_two_rows(w, d[i], d[i + 1], factor * x[i, r], factor * x[i + 1, r])
    if whole < d.shape[0]:
        _add_row(w, d[whole], factor * x[whole, r])


@jit
def few_rows_update(
    w: int, x: int, d: int, sizes: tuple[int, int, int], factor: float, lo: int, hi: int
) -> None:
    """Rows lo to hi of w += factor * x.T @ d, for few rows of x and d."""
    rows, n, m = sizes
    weights, given, slopes = matrix_at(w, rows, n), matrix_at(x, m, rows), matrix_at(d, m, n)
    for r in range(lo, hi):
        _update_row(weights[r], given, slopes, r, factor)


@jit
def few_rows_transposed(
    out: int, d: int, w: int, sizes: tuple[int, int, int], lo: int, hi: int
) -> None:
    """Columns lo to hi of out = d @ w.T, for few rows of d."""
    m, rows, n = sizes
    result, slopes, weights = matrix_at(out, m, rows), matrix_at(d, m, n), matrix_at(w, rows, n)
    for r in range(lo, hi - (hi - lo) % 2, 2):
        for i in range(m):
            result[i, r], result[i, r + 1] = _two_dots(weights[r], weights[r + 1], slopes[i])
    if (hi - lo) % 2:
        for i in range(m):
            result[i, hi - 1] = _dot(weights[hi - 1], slopes[i])


@jit
def few_rows_backward(
    out: int, w: int, x: int, d: int, sizes: tuple[int, int, int], factor: float, lo: int, hi: int
) -> None:
    """Columns lo to hi of out = d @ w.T, then rows lo to hi of w += factor * x.T @ d."""
    m, rows, n = sizes
    weights, given, slopes = matrix_at(w, rows, n), matrix_at(x, m, rows), matrix_at(d, m, n)
    for r in range(lo, hi, 2):
        last = min(r + 2, hi)
        few_rows_transposed(out, d, w, sizes, r, last)
        for s in range(r, last):
            _update_row(weights[s], given, slopes, s, factor)
