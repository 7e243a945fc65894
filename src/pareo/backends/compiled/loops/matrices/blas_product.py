"""A part of a matrix product, by BLAS; float32 only."""

from pareo.backends.compiled.runtime.gemm import call_gemm
from pareo.backends.compiled.runtime.jit import jit

NO_TRANSPOSE, TRANSPOSE = 111, 112


@jit
def blas_product(
    function: int, out: int, a: int, b: int, transpose_a: bool, transpose_b: bool,
    sizes: tuple[int, int, int], alpha: float, beta: float,
    rows: tuple[int, int], columns: tuple[int, int],
) -> None:  # fmt: skip
    """Some rows and columns of out = alpha * a @ b + beta * out, a or b transposed on request.

    The matrices are C-contiguous and given by their addresses. `sizes` are the rows and columns of
    the whole result, and the length of the sums.
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
