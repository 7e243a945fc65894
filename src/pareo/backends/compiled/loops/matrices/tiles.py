"""Products of a small batch with weights, a tile of the result in registers at a time.

BLAS first copies the weights into an order that pays off when they are read often. With a small
batch they are read once, and the copy takes up to half of the time. Here they are read where they
are. The tiles are written as LLVM instructions; all matrices are given by the address of an
element and by the bytes from row to row. float32 only.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from pareo.backends.compiled.runtime.jit import llvm_intrinsic
from pareo.backends.compiled.runtime.llvm_vectors import VectorBuilder

LANES = 4
_I64 = ir.IntType(64)
Values = list[Any]


def _add_bytes(builder: Any, address: Any, row: Any, number: int) -> Any:
    """An address, some rows further."""
    return builder.add(address, builder.mul(row, _I64(number))) if number else address


def _prefetch(builder: Any, address: Any) -> None:
    """Have the line of an address read into the fastest cache."""
    pointer = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, *[ir.IntType(32)] * 3])
    name = "llvm.prefetch.p0"
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    numbers = [ir.IntType(32)(number) for number in (0, 3, 1)]  # to read, often, data
    builder.call(function, [builder.inttoptr(address, pointer), *numbers])


def _sums(builder: Any, code: VectorBuilder, rows: int, columns: int) -> list[Values]:
    """Places for a tile of sums, set to 0."""
    zero = code.constant(0.0)
    return [[cgutils.alloca_once_value(builder, zero) for _ in range(columns)] for _ in range(rows)]


def _add_to(builder: Any, place: Any, code: VectorBuilder, a: Any, b: Any) -> None:
    builder.store(code.multiply_add(a, b, builder.load(place)), place)


def _in_fours(
    builder: Any, count: Any, four: Callable[[Any], None], one: Callable[[Any], None]
) -> None:
    """Emit four(index) for groups of four of `count` items, and one(index) for the others."""
    with cgutils.for_range(builder, builder.ashr(count, _I64(2))) as loop:
        four(builder.mul(loop.index, _I64(4)))
    whole = builder.and_(count, _I64(-4))
    with cgutils.for_range(builder, builder.sub(count, whole)) as loop:
        one(builder.add(whole, loop.index))


def forward_tile(rows: int, vectors: int, lanes: int) -> Any:
    """A function for a tile of out += x @ w, of some rows and some vectors of columns."""

    @llvm_intrinsic
    def tile(typingctx, out, out_row, x, x_row, w, w_row, depth):  # type: ignore[no-untyped-def]
        signature = types.void(*[types.int64] * 7)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            out, out_row, x, x_row, w, w_row, depth = arguments
            code, four = VectorBuilder(builder, lanes), VectorBuilder(builder, LANES)
            sums = _sums(builder, code, rows, vectors)

            def add(place: Any, factors: Values) -> None:
                if vectors > 1:
                    _prefetch(builder, builder.add(place, _I64(4 * lanes * vectors)))
                given = [code.load(place, lanes * j) for j in range(vectors)]
                for i in range(rows):
                    for j in range(vectors):
                        _add_to(builder, sums[i][j], code, given[j], factors[i])

            def splat(vector: Any, lane: int) -> Any:
                if lanes == LANES:
                    return code.broadcast_lane(vector, lane)
                return code.broadcast(builder.extract_element(vector, ir.IntType(32)(lane)))

            def four_rows(k: Any) -> None:
                shift = builder.mul(k, _I64(4))
                own = [
                    four.load(builder.add(_add_bytes(builder, x, x_row, i), shift))
                    for i in range(rows)
                ]
                first = builder.add(w, builder.mul(w_row, k))
                for lane in range(LANES):
                    place = _add_bytes(builder, first, w_row, lane)
                    add(place, [splat(vector, lane) for vector in own])

            def one_row(k: Any) -> None:
                shift = builder.mul(k, _I64(4))
                places = [builder.add(_add_bytes(builder, x, x_row, i), shift) for i in range(rows)]
                factors = [code.load_broadcast(place) for place in places]
                add(builder.add(w, builder.mul(w_row, k)), factors)

            _in_fours(builder, depth, four_rows, one_row)
            for i in range(rows):
                place = _add_bytes(builder, out, out_row, i)
                for j in range(vectors):
                    old = code.load(place, lanes * j)
                    code.store(code.add(old, builder.load(sums[i][j])), place, lanes * j)
            return context.get_dummy_value()

        return signature, generate

    return tile


def panel(rows: int, depth: int, vectors: int) -> Any:
    """A function for some rows of out += x @ w, for a few rows of w from one end to the other.

    `count` is the number of groups of so many vectors of columns. The factors stay in registers.
    """

    @llvm_intrinsic
    def tile(typingctx, out, out_row, x, x_row, w, w_row, count):  # type: ignore[no-untyped-def]
        signature = types.void(*[types.int64] * 7)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            out, out_row, x, x_row, w, w_row, count = arguments
            code = VectorBuilder(builder, LANES)
            own = [
                [code.load(_add_bytes(builder, x, x_row, i), k) for k in range(0, depth, LANES)]
                for i in range(rows)
            ]
            with cgutils.for_range(builder, count) as loop:
                shift = builder.mul(loop.index, _I64(4 * LANES * vectors))
                target, given = builder.add(out, shift), builder.add(w, shift)
                places = [_add_bytes(builder, target, out_row, i) for i in range(rows)]
                sums = [[code.load(place, LANES * j) for j in range(vectors)] for place in places]
                for k in range(depth):
                    place = _add_bytes(builder, given, w_row, k)
                    row = [code.load(place, LANES * j) for j in range(vectors)]
                    for i in range(rows):
                        by = code.broadcast_lane(own[i][k // LANES], k % LANES)
                        for j in range(vectors):
                            sums[i][j] = code.multiply_add(row[j], by, sums[i][j])
                for i in range(rows):
                    for j in range(vectors):
                        code.store(sums[i][j], places[i], LANES * j)
            return context.get_dummy_value()

        return signature, generate

    return tile


def transposed_tile(rows: int, columns: int) -> Any:
    """A function for a tile of out = d @ w.T: the products of some rows of d with some of w."""

    @llvm_intrinsic
    def tile(typingctx, out, out_row, d, d_row, w, w_row, depth):  # type: ignore[no-untyped-def]
        signature = types.void(*[types.int64] * 7)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            out, out_row, d, d_row, w, w_row, depth = arguments
            code, single = VectorBuilder(builder, LANES), VectorBuilder(builder, 1)
            sums = _sums(builder, code, rows, columns)
            rest = _sums(builder, single, rows, columns)

            def add(of: VectorBuilder, into: list[Values], k: Any) -> None:
                shift = builder.mul(k, _I64(4))
                left, right = builder.add(d, shift), builder.add(w, shift)
                given = [of.load(_add_bytes(builder, right, w_row, j)) for j in range(columns)]
                for i in range(rows):
                    own = of.load(_add_bytes(builder, left, d_row, i))
                    for j in range(columns):
                        _add_to(builder, into[i][j], of, own, given[j])

            _in_fours(builder, depth, lambda k: add(code, sums, k), lambda k: add(single, rest, k))
            for i in range(rows):
                place = _add_bytes(builder, out, out_row, i)
                for j in range(columns):
                    last = builder.extract_element(builder.load(rest[i][j]), ir.IntType(32)(0))
                    total = code.reduce_add(builder.load(sums[i][j]), last)
                    code.store_scalar(total, place, j)
            return context.get_dummy_value()

        return signature, generate

    return tile


def update_tile(rows: int, vectors: int, lanes: int) -> Any:
    """A function for a tile of w += factor * x.T @ d: some rows, some vectors of columns."""

    @llvm_intrinsic
    def tile(typingctx, w, w_row, x, x_row, d, d_row, count, factor):  # type: ignore[no-untyped-def]
        signature = types.void(*[types.int64] * 7, types.float32)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            w, w_row, x, x_row, d, d_row, count, factor = arguments
            code, own = VectorBuilder(builder, lanes), VectorBuilder(builder, rows)
            sums = _sums(builder, code, rows, vectors)
            with cgutils.for_range(builder, count) as loop:
                left = own.load(builder.add(x, builder.mul(x_row, loop.index)))
                place = builder.add(d, builder.mul(d_row, loop.index))
                given = [code.load(place, lanes * j) for j in range(vectors)]
                for i in range(rows):
                    one = builder.extract_element(left, ir.IntType(32)(i))
                    by = code.broadcast_lane(left, i) if rows == lanes else code.broadcast(one)
                    for j in range(vectors):
                        _add_to(builder, sums[i][j], code, given[j], by)
            by = code.broadcast(factor)
            for i in range(rows):
                place = _add_bytes(builder, w, w_row, i)
                for j in range(vectors):
                    old = code.load(place, lanes * j)
                    code.store(
                        code.multiply_add(by, builder.load(sums[i][j]), old), place, lanes * j
                    )
            return context.get_dummy_value()

        return signature, generate

    return tile
