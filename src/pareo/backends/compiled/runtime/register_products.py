"""A tile of a matrix product in registers, from factors that lie in memory in many ways.

BLAS would copy both factors first, which takes long for small products and for convolutions, whose
windows overlap. float32 only.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types

from pareo.backends.compiled.runtime.jit import llvm_intrinsic
from pareo.backends.compiled.runtime.lanes import LANES, call_on_vectors
from pareo.backends.compiled.runtime.llvm_vectors import MaskedVectors, VectorBuilder

VECTORS = 4 if LANES == 4 else 2  # of a tile's columns
# Rows of a tile: with two registers for columns and one for a factor, the others hold sums.
ROWS = {4: 6, 8: 6, 16: 14}[LANES]
WIDE = VECTORS * LANES
AHEAD = 8  # rows of b that are fetched before they are needed: a panel lies in the second cache
LINE = 64  # bytes of a cache line
_I64 = ir.IntType(64)


class Extra(NamedTuple):
    """What a masked tile has besides: its last vector uses the first `last` lanes."""

    bias: ir.Value
    factor: ir.Value
    last: ir.Value


@llvm_intrinsic
def product_tile(typingctx, rows, vectors, keep, out, a, b, sizes):  # type: ignore[no-untyped-def]
    """out (rows by vectors) = the sum over n of a[:, n] times b[n]; with `keep`, out += it.

    out, a and b are addresses and distances in bytes: out's from row to row; a's from row to row,
    then as b's, from one n to the next in three loops, the inmost last. sizes are those of the
    loops.
    """
    signature = types.void(
        *[types.int64] * 3, *(types.UniTuple(types.int64, n) for n in (2, 5, 4, 3))
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        single, tuples = arguments[:3], arguments[3:]
        numbers = [one for many in tuples for one in cgutils.unpack_tuple(builder, many)]
        call_on_vectors(builder, "product_tile", [*single, *numbers], _write)
        return context.get_dummy_value()

    return signature, generate


@llvm_intrinsic
def masked_product_tile(typingctx, rows, columns, keep, bias, factor, out, a, b, sizes):  # type: ignore[no-untyped-def]
    """The same for any number of columns up to WIDE: out = factor * the sum, or out += it.

    If `bias` is the address of a row and not 0, the row is added, too.
    """
    signature = types.void(
        *[types.int64] * 4, types.float32, *(types.UniTuple(types.int64, n) for n in (2, 5, 4, 3))
    )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, columns, keep, bias, factor, *tuples = arguments
        vectors = builder.sdiv(builder.add(columns, _I64(LANES - 1)), _I64(LANES))
        last = builder.sub(columns, builder.mul(builder.sub(vectors, _I64(1)), _I64(LANES)))
        numbers = [one for many in tuples for one in cgutils.unpack_tuple(builder, many)]
        call_on_vectors(
            builder, "masked_product_tile",
            [rows, vectors, keep, *numbers, bias, factor, last],
            lambda code, all_: _write(code, all_[:-3], Extra(*all_[-3:])),
        )  # fmt: skip
        return context.get_dummy_value()

    return signature, generate


def _write(code: VectorBuilder, arguments: Sequence[ir.Value], extra: Extra | None = None) -> None:
    """The body: code for each number of rows and of vectors."""
    builder = code.builder
    done = builder.append_basic_block("done")
    rows, vectors, *rest = arguments
    masked = MaskedVectors(builder, LANES, extra.last) if extra else code
    choice = builder.switch(builder.add(builder.mul(rows, _I64(VECTORS + 1)), vectors), done)
    for height in range(1, ROWS + 1):
        for width in range(1, VECTORS + 1):
            block = builder.append_basic_block(f"tile{height}x{width}")
            choice.add_case(_I64(height * (VECTORS + 1) + width), block)
            builder.position_at_end(block)
            _sum([code] * (width - 1) + [masked], height, rest, extra)
            builder.branch(done)
    builder.position_at_end(done)


def _sum(
    columns: Sequence[VectorBuilder],
    height: int,
    arguments: Sequence[ir.Value],
    extra: Extra | None,
) -> None:
    """The code of one size; each vector of columns has its own loads and stores."""
    code, width = columns[0], len(columns)
    builder = code.builder
    keep, out, out_row, a, a_row = arguments[:5]
    a_steps, b, b_steps, sizes = arguments[5:8], arguments[8], arguments[9:12], arguments[12:]
    zero = code.constant(0.0)
    sums = [[cgutils.alloca_once_value(builder, zero) for _ in range(width)] for _ in range(height)]
    for place in (place for row in sums for place in row):
        builder.store(zero, place)

    # A processor starts four to six instructions at a time. Without this, the compiler would spend
    # one for each row on its address, which it derives from that of the row before.
    odd = {i: code.opaque(builder.mul(a_row, _I64(i))) for i in range(1, height, 2)}
    fetched = builder.mul(b_steps[2], _I64(AHEAD))
    if extra:
        with builder.if_then(builder.icmp_signed("!=", keep, _I64(0))):
            below = builder.add(out, builder.mul(out_row, _I64(height)))
            for i in range(height):
                place = builder.add(below, builder.mul(out_row, _I64(i)))
                for line in range(0, 4 * LANES * width, LINE):
                    code.prefetch(builder.add(place, _I64(line)))

    def begin(first: ir.Value, i: int) -> ir.Value:
        """The address of row i: an odd distance, times a power of two, after the first."""
        twos = (i & -i).bit_length() - 1
        return builder.add(first, builder.shl(odd[i >> twos], _I64(twos))) if i else first

    def loop(depth: int, own: ir.Value, given: ir.Value) -> None:
        with cgutils.for_range(builder, sizes[depth]) as at:
            own = builder.add(own, builder.mul(a_steps[depth], at.index))
            given = builder.add(given, builder.mul(b_steps[depth], at.index))
            if depth < 2:
                loop(depth + 1, own, given)
                return
            vectors = [each.load(given, LANES * j) for j, each in enumerate(columns)]
            for place in range(0, 4 * LANES * width, LINE):
                code.prefetch(builder.add(builder.add(given, fetched), _I64(place)))
            for i in range(height):
                by = code.load_broadcast(begin(own, i))
                for j in range(width):
                    total = code.multiply_add(vectors[j], by, builder.load(sums[i][j]))
                    builder.store(total, sums[i][j])

    loop(0, a, b)
    if extra:
        by = code.broadcast(extra.factor)
        for place in (place for row in sums for place in row):
            builder.store(code.multiply(by, builder.load(place)), place)
        with builder.if_then(builder.icmp_signed("!=", extra.bias, _I64(0))):
            for j, each in enumerate(columns):
                row = each.load(extra.bias, LANES * j)
                for i in range(height):
                    builder.store(code.add(row, builder.load(sums[i][j])), sums[i][j])
    places = [builder.add(out, builder.mul(out_row, _I64(i))) for i in range(height)]
    with builder.if_then(builder.icmp_signed("!=", keep, _I64(0))):
        for i, place in enumerate(places):
            for j, each in enumerate(columns):
                total = code.add(each.load(place, LANES * j), builder.load(sums[i][j]))
                builder.store(total, sums[i][j])
    for i, place in enumerate(places):
        for j, each in enumerate(columns):
            each.store(builder.load(sums[i][j]), place, LANES * j)
