"""Products of one row with a narrow matrix, forward and backward, each matrix row as one vector.

They are written as LLVM instructions, like `register_tiles`: rows of ten floats do not fill whole
registers, and the compiler would not vectorise a loop over their elements. All sizes are literals.
float32 only. The arrays of a call must not overlap.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from pareo.backends.compiled.runtime.llvm_vectors import FLOAT, VectorBuilder, literals

MAX_COLUMNS = 16  # wider rows fill the registers by themselves
UNROLL = 4  # rows in flight, so that a sum does not wait for the previous one


def _each_row(
    code: VectorBuilder,
    count: int,
    steps: list[tuple[Any, int]],
    body: Callable[[int, list[Any]], None],
) -> None:
    """Emit body(number, addresses) for `count` rows.

    Each address advances by its `step` floats from row to row. The numbers cycle from 0 to
    UNROLL - 1.
    """
    builder = code.builder

    def rows(start: list[Any], number: int) -> None:
        moved = [ir.IntType(64)(4 * number * step) for _, step in steps]
        body(number, [builder.add(place, by) for place, by in zip(start, moved, strict=True)])

    with cgutils.for_range(builder, ir.IntType(64)(count // UNROLL)) as loop:
        start = [code.advance(place, loop.index, UNROLL * step) for place, step in steps]
        for number in range(UNROLL):
            rows(start, number)
    last = ir.IntType(64)(count // UNROLL)
    start = [code.advance(place, last, UNROLL * step) for place, step in steps]
    for number in range(count % UNROLL):
        rows(start, number)


@intrinsic(prefer_literal=True)
def dot_row(typingctx, out, a, b, start, depth, columns):  # type: ignore[no-untyped-def]
    """out (columns) = start + a (depth) @ b (depth, columns), all given by their addresses."""
    sizes = literals(depth, columns)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        depth, columns = sizes
        out, a, b, start = arguments[:4]
        code = VectorBuilder(builder, columns)
        sums = [cgutils.alloca_once_value(builder, code.load(start))]
        sums += [cgutils.alloca_once_value(builder, code.constant(0.0)) for _ in range(UNROLL - 1)]

        def body(number: int, places: list[Any]) -> None:
            element, row = code.load_broadcast(places[0]), code.load(places[1])
            total = code.multiply_add(element, row, builder.load(sums[number]))
            builder.store(total, sums[number])

        _each_row(code, depth, [(a, 1), (b, columns)], body)
        total = builder.load(sums[0])
        for more in sums[1:]:
            total = code.add(total, builder.load(more))
        code.store(total, out)
        return context.get_dummy_value()

    return types.void(out, a, b, start, depth, columns), generate


@intrinsic(prefer_literal=True)
def dot_transposed_row(typingctx, out, a, b, columns, depth):  # type: ignore[no-untyped-def]
    """out (columns) = a (depth) @ b (columns, depth).T, all given by their addresses."""
    sizes = literals(columns, depth)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        columns, depth = sizes
        out, a, b = arguments[:3]
        code = VectorBuilder(builder, depth)
        vector = code.load(a)

        def body(number: int, places: list[Any]) -> None:
            products = code.multiply(vector, code.load(places[1]))
            code.store_scalar(code.reduce_add(products, ir.Constant(FLOAT, 0.0)), places[0])

        _each_row(code, columns, [(out, 1), (b, depth)], body)
        return context.get_dummy_value()

    return types.void(out, a, b, columns, depth), generate


@intrinsic(prefer_literal=True)
def add_outer_row(typingctx, out, a, b, rows, columns):  # type: ignore[no-untyped-def]
    """out (rows, columns) += the outer product of a (rows) and b (columns), given by addresses."""
    sizes = literals(rows, columns)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, columns = sizes
        out, a, b = arguments[:3]
        code = VectorBuilder(builder, columns)
        vector = code.load(b)

        def body(number: int, places: list[Any]) -> None:
            element = code.load_broadcast(places[1])
            code.store(code.multiply_add(element, vector, code.load(places[0])), places[0])

        _each_row(code, rows, [(out, columns), (a, 1)], body)
        return context.get_dummy_value()

    return types.void(out, a, b, rows, columns), generate
