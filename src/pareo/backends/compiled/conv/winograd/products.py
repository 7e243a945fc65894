"""The products of Winograd's positions, in tiles of registers.

The transforms write their results in the order that these products read: BLAS would copy both
factors of 36 small products before each of them.
"""

from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.register_products import LANES, ROWS, WIDE, product_tile


@jit
def multiply(
    out: int, out_width: int, keep: int, a: int, a_width: int, b: int, rows: int, depth: int,
    columns: int,
) -> None:  # fmt: skip
    """out = a @ b, of which a's first `depth` columns count; with `keep`, out += it.

    out has `rows` rows of out_width numbers, a of a_width, and b of `columns`, a panel at most.
    """
    for i in range(0, rows, ROWS):
        product_tile(
            min(ROWS, rows - i), columns // LANES, keep, (out + 4 * i * out_width, 4 * out_width),
            (a + 4 * i * a_width, 4 * a_width, 0, 0, 4), (b, 0, 0, 4 * columns), (1, 1, depth),
        )  # fmt: skip


@jit
def add_products(
    out: int, out_width: int, keep: int, a: int, a_width: int, b: int, b_width: int, rows: int,
    columns: int, count: int,
) -> None:  # fmt: skip
    """out (rows by columns) = a' @ b for `count` rows of a and b; with `keep`, out += it."""
    for column in range(0, columns, WIDE):
        wide = min(WIDE, columns - column)
        for i in range(0, rows, ROWS):
            product_tile(
                min(ROWS, rows - i), wide // LANES, keep,
                (out + 4 * (i * out_width + column), 4 * out_width),
                (a + 4 * i, 4, 0, 0, 4 * a_width), (b + 4 * column, 0, 0, 4 * b_width),
                (1, 1, count),
            )  # fmt: skip
