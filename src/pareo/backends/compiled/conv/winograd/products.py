"""The products of Winograd's positions: tiles of the result in registers, nothing copied first.

The transforms write their results in the order that these products read: BLAS would copy both
factors of 36 small products before each of them. float32 only.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from pareo.backends.compiled.runtime import registers
from pareo.backends.compiled.runtime.jit import jit, llvm_intrinsic
from pareo.backends.compiled.runtime.llvm_vectors import VectorBuilder

LANES = registers.LANES
VECTORS = 4 if LANES == 4 else 2  # of a tile's columns
# Rows of a tile: with two registers for columns and one for a factor, the others hold sums.
ROWS = {4: 6, 8: 6, 16: 14}[LANES]
WIDE = VECTORS * LANES
_I64 = ir.IntType(64)


@llvm_intrinsic
def _tile(typingctx, rows, vectors, keep, out, out_row, a, a_row, a_next, b, b_next, count):  # type: ignore[no-untyped-def]
    """out (rows by vectors) = the sum over count of a[:, n] times b[n]; with `keep`, out += it.

    Addresses, and distances in bytes.
    """
    signature = types.void(*[types.int64] * 11)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        name = "pareo_winograd_product"
        function = builder.module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
            function = ir.Function(builder.module, kind, name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            _define(function)
        builder.call(function, arguments)
        return context.get_dummy_value()

    return signature, generate


def _define(function: ir.Function) -> None:
    """The body: code for each number of rows and of vectors."""
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    done = function.append_basic_block("done")
    rows, vectors, *rest = function.args
    number = builder.add(builder.mul(rows, _I64(VECTORS + 1)), vectors)
    choice = builder.switch(number, done)
    for height in range(1, ROWS + 1):
        for width in range(1, VECTORS + 1):
            block = function.append_basic_block(f"tile{height}x{width}")
            choice.add_case(_I64(height * (VECTORS + 1) + width), block)
            builder.position_at_end(block)
            _sum(builder, height, width, rest)
            builder.branch(done)
    builder.position_at_end(done)
    builder.ret_void()


def _sum(builder: ir.IRBuilder, height: int, width: int, arguments: list[ir.Value]) -> None:
    keep, out, out_row, a, a_row, a_next, b, b_next, count = arguments
    code = VectorBuilder(builder, LANES)
    zero = code.constant(0.0)
    sums = [[cgutils.alloca_once_value(builder, zero) for _ in range(width)] for _ in range(height)]
    for place in (place for row in sums for place in row):
        builder.store(zero, place)
    with cgutils.for_range(builder, count) as loop:
        own = builder.add(a, builder.mul(a_next, loop.index))
        given = builder.add(b, builder.mul(b_next, loop.index))
        columns = [code.load(given, LANES * j) for j in range(width)]
        for i in range(height):
            by = code.load_broadcast(builder.add(own, builder.mul(a_row, _I64(i))))
            for j in range(width):
                total = code.multiply_add(columns[j], by, builder.load(sums[i][j]))
                builder.store(total, sums[i][j])
    with builder.if_then(builder.icmp_signed("!=", keep, _I64(0))):
        for i in range(height):
            place = builder.add(out, builder.mul(out_row, _I64(i)))
            for j in range(width):
                total = code.add(code.load(place, LANES * j), builder.load(sums[i][j]))
                builder.store(total, sums[i][j])
    for i in range(height):
        place = builder.add(out, builder.mul(out_row, _I64(i)))
        for j in range(width):
            code.store(builder.load(sums[i][j]), place, LANES * j)


@jit
def multiply(
    out: int, out_width: int, keep: int, a: int, a_width: int, b: int, rows: int, depth: int,
    columns: int,
) -> None:  # fmt: skip
    """out = a @ b, of which a's first `depth` columns count; with `keep`, out += it.

    out has `rows` rows of out_width numbers, a of a_width, and b of `columns`, a panel at most.
    """
    for i in range(0, rows, ROWS):
        _tile(
            min(ROWS, rows - i), columns // LANES, keep, out + 4 * i * out_width, 4 * out_width,
            a + 4 * i * a_width, 4 * a_width, 4, b, 4 * columns, depth,
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
            _tile(
                min(ROWS, rows - i), wide // LANES, keep, out + 4 * (i * out_width + column),
                4 * out_width, a + 4 * i, 4, 4 * a_width, b + 4 * column, 4 * b_width, count,
            )  # fmt: skip
