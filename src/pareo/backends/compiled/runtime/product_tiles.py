"""Products of matrices as tiles in registers, which read the factors where they are.

BLAS copies both factors before it multiplies. Addresses and distances are in bytes. float32 only.
"""

import numpy as np

from pareo.backends.compiled.runtime.array_at import number_at, vector_at
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.lanes import LANES, pixels_to_vectors
from pareo.backends.compiled.runtime.register_products import ROWS, WIDE, masked_product_tile

DEPTH = 128  # of the sums at a time: so many rows of a panel stay in the fastest cache
ONE = np.float32(1)
_PLACES = 4 * WIDE * np.arange(DEPTH, dtype=np.int64)  # of the rows of a panel, in bytes


@jit
def tile_height(rows: int) -> int:
    """Rows of a tile, so that all tiles have about as many; at least one."""
    return max(1, -(-rows // max(1, -(-rows // ROWS))))


@jit
def multiply_panel(
    rows: tuple[int, int], wide: int, keep: int, bias: int, factor: float, out: tuple[int, int],
    a: tuple[int, int, int], b: tuple[int, int], count: int,
) -> None:  # fmt: skip
    """These rows of out = factor * a @ b for `wide` columns; with `keep`, out += it.

    out and b: an address, and the bytes to the next row. a: the same, and those to the next number
    of a sum; each sum has `count` of them. bias: the address of a row to add, or 0.
    """
    (top, bottom), (into, into_next), (left, left_next, along) = rows, out, a
    height = tile_height(bottom - top)
    for i in range(top, bottom, height):
        masked_product_tile(
            min(height, bottom - i), wide, keep, bias, factor,
            (into + i * into_next, into_next), (left + i * left_next, left_next, 0, 0, along),
            (b[0], 0, 0, b[1]), (1, 1, count),
        )  # fmt: skip


@jit
def turn_rows(into: int, rows: int, row_bytes: int, count: int, depth: int) -> None:
    """A panel of WIDE columns, of which `count` are the first `depth` numbers of rows.

    depth is DEPTH at most.
    """
    table = _PLACES.ctypes.data
    for c in range(0, count, LANES):
        own, given, target = min(LANES, count - c), rows + c * row_bytes, into + 4 * c
        for k in range(0, depth - LANES + 1, LANES):
            pixels_to_vectors(target, table + 8 * k, given + 4 * k, row_bytes, own)
        if depth % LANES and depth >= LANES:
            k = depth - LANES
            pixels_to_vectors(target, table + 8 * k, given + 4 * k, row_bytes, own)
    if depth < LANES:
        for k in range(depth):
            panel = vector_at(into + 4 * k * WIDE, WIDE)
            for c in range(count):
                panel[c] = number_at(rows + c * row_bytes + 4 * k)
