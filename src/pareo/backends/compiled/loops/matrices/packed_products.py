"""Products of large layers whose weights lie in panels.

A panel has WIDE columns of the weights, row by row, the last one as few vectors as it needs. So all
that is read lies in the order in which it is read, and no step copies weights, as BLAS would. The
gradient of a layer's inputs and the update of its weights are one pass over the weights: some rows
are updated while they are in a cache. All other matrices are C-contiguous. All are given by their
addresses. float32 only.
"""

from typing import Any

import numpy as np
from numba.core import cgutils, types

from pareo.array import Array
from pareo.backends.compiled.runtime import registers
from pareo.backends.compiled.runtime.array_at import vector_at
from pareo.backends.compiled.runtime.jit import jit, llvm_intrinsic
from pareo.backends.compiled.runtime.lanes import (
    LANES,
    VECTOR,
    call_on_vectors,
    pixels_to_vectors,
    whole_vectors,
)
from pareo.backends.compiled.runtime.llvm_vectors import MaskedVectors
from pareo.backends.compiled.runtime.product_tiles import DEPTH, ONE, tile_height, turn_rows
from pareo.backends.compiled.runtime.register_products import ROWS, WIDE, masked_product_tile

LEAST_BATCH, LEAST_BATCH_UNCACHED, MOST_BATCH = 32, 12, 512
CACHED = 1 << 18  # weights, which stay in the second cache
LEAST_WEIGHTS = 1 << 14
LEAST_FEATURES = 2 * WIDE  # with fewer, inputs take longer to copy than to multiply
DEEP = 384  # numbers of a sum at a time: so many rows of a tile stay in the fastest cache
ERRORS = 1 << 16  # of a batch at a time, in panels: they stay in the second cache
AT_ONCE = 8  # panels, at most
TURNED = 12 * WIDE  # columns of weights at a time, of which rows are turned
TURNED_ROWS = 3  # how much longer the gradient of an input takes to turn than a weight


@llvm_intrinsic
def copy_vectors(typingctx, into, into_next, given, given_next, rows, whole, count):  # type: ignore[no-untyped-def]
    """Write `whole` numbers of so many rows: `count` that are given, and 0 after them."""
    signature = types.void(*[types.int64] * 7)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def write(code: Any, arguments: Any) -> None:
            into, into_next, given, given_next, rows, whole, count = arguments
            masked = MaskedVectors(code.builder, LANES, count)
            written = MaskedVectors(code.builder, LANES, whole)
            with cgutils.for_range(code.builder, rows) as loop:
                source = code.builder.add(given, code.builder.mul(given_next, loop.index))
                target = code.builder.add(into, code.builder.mul(into_next, loop.index))
                written.store(masked.load(source), target)

        call_on_vectors(builder, "copy_vectors", arguments, write)
        return context.get_dummy_value()

    return signature, generate


def suits(batch: int, inputs: int, features: int) -> bool:
    """Whether panels are the fastest for a layer; masked registers are fast with AVX-512 only."""
    weights = inputs * features
    least = LEAST_BATCH if weights <= CACHED else LEAST_BATCH_UNCACHED
    return (
        registers.HAS_AVX512
        and least <= batch <= MOST_BATCH
        and weights >= LEAST_WEIGHTS
        and features >= max(LEAST_FEATURES, batch // 2)
    )


def empty(rows: int, columns: int) -> Array:
    """Memory for panels, at a line of the cache."""
    floats = rows * whole_vectors(columns)
    made = np.empty(floats + LANES, np.float32)
    first = -made.ctypes.data % VECTOR // 4
    return made[first : first + floats]


def work_floats(inputs: int, features: int, batch: int) -> int:
    """How many numbers a worker needs for the products of a layer."""
    errors = panels_at_once(batch) * WIDE * (batch + -(-batch // WIDE) * WIDE)
    update = -(-inputs // ROWS) * LANES * batch + inputs * batch + errors
    rows = -(-batch // ROWS) * LANES * max(inputs, features) + TURNED * WIDE
    return max(rows, update)


@jit
def pack(into: int, rows: int, shape: Array, lo: int, hi: int) -> None:
    """Rows lo to hi of weights, as panels; the rest of the last vector is 0."""
    count, wide = shape
    for at in range(0, wide, LANES):
        panel = at // WIDE * WIDE
        row = 4 * min(WIDE, whole_vectors(wide - panel))
        copy_vectors(
            into + 4 * (panel * count + at - panel) + lo * row, row, rows + 4 * (lo * wide + at),
            4 * wide, hi - lo, LANES, min(LANES, wide - at),
        )  # fmt: skip


@jit
def unpack(rows: int, panels: int, shape: Array, lo: int, hi: int) -> None:
    """The reverse."""
    count, wide = shape
    for at in range(0, wide, LANES):
        panel = at // WIDE * WIDE
        row, own = 4 * min(WIDE, whole_vectors(wide - panel)), min(LANES, wide - at)
        copy_vectors(
            rows + 4 * (lo * wide + at), 4 * wide,
            panels + 4 * (panel * count + at - panel) + lo * row, row, hi - lo, own, own,
        )  # fmt: skip


@jit
def _copy_panels(into: int, rows: int, row_bytes: int, count: int, wide: int) -> None:
    """Panels of the first `wide` numbers of so many rows; the rest of the last vector is 0."""
    for at in range(0, wide, LANES):
        panel = at // WIDE * WIDE
        row = 4 * min(WIDE, whole_vectors(wide - panel))
        copy_vectors(
            into + 4 * (panel * count + at - panel), row, rows + 4 * at, row_bytes, count, LANES,
            min(LANES, wide - at),
        )  # fmt: skip


@jit
def _rows(x: int, count: int, depth: int, height: int, work: int) -> tuple[int, int, int, int]:
    """Where tiles read rows: an address, and the bytes to the next row, number and tile.

    Rows that lie so far apart that those of a tile displace each other from the fastest cache are
    copied first: tile by tile, for each number a vector of all rows.
    """
    if depth % 512:
        return x, 4 * depth, 4, 4 * depth * height
    table = np.empty(LANES, np.int64)
    for k in range(LANES):
        table[k] = k * VECTOR
    for i in range(0, count, height):
        for k in range(0, depth, LANES):
            pixels_to_vectors(
                work + (i // height * depth + k) * VECTOR, table.ctypes.data,
                x + 4 * (i * depth + k), 4 * depth, min(height, count - i),
            )  # fmt: skip
    return work, 4, VECTOR, depth * VECTOR


@jit
def _multiply(
    out: tuple[int, int], count: int, height: int, rows: tuple[int, int, int, int], k: int,
    panel: tuple[int, int], wide: int, deep: int, bias: int,
) -> None:  # fmt: skip
    """Some rows, from their number k on, times a panel; with k > 0 added to what is there."""
    first, next_row, along, next_tile = rows
    for i in range(0, count, height):
        masked_product_tile(
            min(height, count - i), wide, k, bias, ONE, (out[0] + i * out[1], out[1]),
            (first + i // height * next_tile + k * along, next_row, 0, 0, along),
            (panel[0], 0, 0, panel[1]), (1, 1, deep),
        )  # fmt: skip


@jit
def forward(
    out: int, x: int, w: int, bias: int, sizes: tuple[int, int, int], rows: tuple[int, int],
    columns: tuple[int, int], work: int,
) -> None:  # fmt: skip
    """Some rows and columns of out = x @ w + bias, if `bias` is an address and not 0."""
    _, n, depth = sizes
    (top, bottom), (left, right) = rows, columns
    height = tile_height(bottom - top)
    given = _rows(x + 4 * top * depth, bottom - top, depth, height, work)
    deep = -(-depth // -(-depth // DEEP))
    for k in range(0, depth, deep):  # so many numbers of all rows stay in the second cache
        for c in range(left, right, WIDE):
            wide, row = min(WIDE, right - c), 4 * min(WIDE, whole_vectors(n - c))
            _multiply(
                (out + 4 * (top * n + c), 4 * n), bottom - top, height, given, k,
                (w + 4 * c * depth + k * row, row), wide, min(deep, depth - k),
                bias + 4 * c if bias and not k else 0,
            )  # fmt: skip


@jit
def _input_gradient(
    gx: int, d: int, w: int, sizes: tuple[int, int, int], rows: tuple[int, int], work: int
) -> None:
    """Some columns of gx = d @ w.T, of which these rows of w are turned to panels first."""
    m, n, batch = sizes
    top, bottom = rows
    height, panel = tile_height(batch), work
    given = _rows(d, batch, n, height, work + 4 * WIDE * TURNED)
    for i in range(top, bottom, WIDE):
        own = min(WIDE, bottom - i)
        for k in range(0, n, TURNED):
            deep = min(TURNED, n - k)
            for c in range(k, k + deep, WIDE):
                row = 4 * min(WIDE, whole_vectors(n - c))
                turn_rows(
                    panel + 4 * WIDE * (c - k), w + 4 * c * m + i * row, row, own,
                    min(WIDE, n - c),
                )  # fmt: skip
            _multiply((gx + 4 * i, 4 * m), batch, height, given, k, (panel, 4 * WIDE), own, deep, 0)


@jit
def panels_at_once(batch: int) -> int:
    """Panels of a batch's gradients that stay in the second cache."""
    return min(AT_ONCE, max(1, ERRORS // (WIDE * batch)))


@jit
def backward(
    gx: int, d: int, x: int, w: int, sizes: tuple[int, int, int], rate: float,
    rows: tuple[int, int], work: int,
) -> None:  # fmt: skip
    """Some rows of w -= rate * x.T @ d, and these columns of gx = d @ w.T with the old w.

    If gx or x is 0, only the other of the two. sizes: rows and columns of w, rows of the batch.
    """
    m, n, batch = sizes
    top, bottom = rows
    if gx and batch * TURNED_ROWS > n:
        _input_gradient(gx, d, w, sizes, rows, work)
        if not x:
            return
        gx = 0
    height = tile_height(bottom - top)
    tiles = work
    turned = tiles + -(-(bottom - top) // height) * batch * VECTOR
    at_once = panels_at_once(batch)
    panels = turned + (4 * (bottom - top) * batch if gx else 0)
    columns = panels + 4 * batch * WIDE * at_once
    if x:
        for k in range(0, batch, LANES):
            for i in range(top, bottom, height):
                copy_vectors(
                    tiles + ((i - top) // height * batch + k) * VECTOR, VECTOR,
                    x + 4 * (k * m + i), 4 * m, min(LANES, batch - k), LANES,
                    min(height, bottom - i),
                )  # fmt: skip
    c = 0
    while c < n:
        count = min(at_once, (n - c) // WIDE)  # whole panels; the last, narrower one is on its own
        wide = count * WIDE if count else n - c
        row = 4 * WIDE if count else 4 * whole_vectors(wide)
        if x:
            _copy_panels(panels, d + 4 * c, 4 * n, batch, wide)
        if gx:
            for p in range(0, batch, WIDE):
                for q in range(0, wide, DEPTH):
                    turn_rows(
                        columns + 4 * (p * wide + q * WIDE), d + 4 * (p * n + c + q), 4 * n,
                        min(WIDE, batch - p), min(DEPTH, wide - q),
                    )  # fmt: skip
        for i in range(top, bottom, height):
            own, place = min(height, bottom - i), w + 4 * c * m + i * row
            if gx:
                for p in range(0, batch, WIDE):
                    masked_product_tile(
                        own, min(WIDE, batch - p), c, 0, ONE,
                        (turned + 4 * ((i - top) * batch + p), 4 * batch),
                        (place, row, 0, m * row, 4),
                        (columns + 4 * p * wide, 0, 4 * WIDE * WIDE, 4 * WIDE),
                        (1, max(1, count), WIDE if count else wide),
                    )  # fmt: skip
            for k in range(0, batch if x else 0, DEEP):
                tile = tiles + ((i - top) // height * batch + k) * VECTOR
                for p in range(max(1, count)):
                    masked_product_tile(
                        own, min(WIDE, wide), 1, 0, -rate, (place + p * m * row, row),
                        (tile, 4, 0, 0, VECTOR), (panels + p * batch * row + k * row, 0, 0, row),
                        (1, 1, min(DEEP, batch - k)),
                    )  # fmt: skip
        c += wide
    if gx:
        _turn(gx + 4 * top, 4 * m, turned, 4 * batch, bottom - top, batch)


@jit
def _turn(out: int, out_bytes: int, rows: int, row_bytes: int, count: int, depth: int) -> None:
    """out = the transposed of `count` rows of `depth` numbers."""
    table = np.empty(LANES, np.int64)
    for k in range(LANES):
        table[k] = k * out_bytes
    places = table.ctypes.data
    if count < LANES or depth < LANES:
        for k in range(depth):
            own = vector_at(out + k * out_bytes, count)
            for i in range(count):
                own[i] = vector_at(rows + i * row_bytes + 4 * k, 1)[0]
        return
    for begin in range(0, depth, LANES):
        k = min(begin, depth - LANES)
        for first in range(0, count, LANES):
            i = min(first, count - LANES)
            pixels_to_vectors(
                out + k * out_bytes + 4 * i, places, rows + i * row_bytes + 4 * k, row_bytes, LANES
            )
