"""Dense layers of a single image: a row times a matrix, as plain loops."""

from pareo.array import Array
from pareo.backends.compiled.runtime.jit import jit


@jit
def forward(y: Array, x: Array, w: Array, b: Array) -> None:
    """y = x @ w + b, without b if that is empty."""
    for o in range(y.size):
        y[o] = b[o] if b.size else 0
    whole = x.size // 4 * 4
    for i in range(0, whole, 4):
        one, two, three, four = x[i], x[i + 1], x[i + 2], x[i + 3]
        _add_rows(y, w[i], w[i + 1], w[i + 2], w[i + 3], one, two, three, four)
    for i in range(whole, x.size):
        _add_row(y, w[i], x[i])


@jit
def _add_rows(
    y: Array, a: Array, b: Array, c: Array, d: Array, one: float, two: float, three: float,
    four: float,
) -> None:  # fmt: skip
    for o in range(y.size):
        y[o] += a[o] * one + b[o] * two + c[o] * three + d[o] * four


@jit
def _add_row(y: Array, row: Array, factor: float) -> None:
    for o in range(y.size):
        y[o] += row[o] * factor


@jit
def _product(a: Array, b: Array) -> float:
    total = a.dtype.type(0)
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@jit
def transposed(y: Array, x: Array, w: Array, b: Array) -> None:
    """y = x @ w.T + b, without b if that is empty."""
    for i in range(y.size):
        y[i] = _product(x, w[i])
    for i in range(b.size):
        y[i] += b[i]


@jit
def weight_gradient(gw: Array, x: Array, g: Array) -> None:
    """gw += the outer product of x and g."""
    for i in range(x.size):
        _add_row(gw[i], g, x[i])
