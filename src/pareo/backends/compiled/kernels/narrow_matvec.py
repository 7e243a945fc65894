"""Products of one row with a narrow matrix, forth and back, a row of the matrix as one vector.

Written as LLVM's own instructions, like `tiles`: rows of ten floats fill no whole registers, and a
loop over their elements runs one by one. All sizes are literals. float32 only, no array in two
places of a call.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from pareo.backends.compiled.runtime.llvm_vectors import FLOAT, Vectors, literals

WIDEST = 16  # columns: wider rows keep the registers busy by themselves
TOGETHER = 4  # rows in flight, so that a sum does not wait for the one before


def _each_row(
    code: Vectors,
    count: int,
    steps: list[tuple[Any, int]],
    body: Callable[[int, list[Any]], None],
) -> None:
    """body(number, addresses) for `count` rows, each address `step` floats further on every time.

    The numbers go round from 0 to TOGETHER - 1.
    """
    builder = code.builder

    def rows(start: list[Any], number: int) -> None:
        moved = [ir.IntType(64)(4 * number * step) for _, step in steps]
        body(number, [builder.add(place, by) for place, by in zip(start, moved, strict=True)])

    with cgutils.for_range(builder, ir.IntType(64)(count // TOGETHER)) as loop:
        start = [code.behind(place, loop.index, TOGETHER * step) for place, step in steps]
        for number in range(TOGETHER):
            rows(start, number)
    last = ir.IntType(64)(count // TOGETHER)
    start = [code.behind(place, last, TOGETHER * step) for place, step in steps]
    for number in range(count % TOGETHER):
        rows(start, number)


@intrinsic(prefer_literal=True)
def dot_row(typingctx, out, a, b, start, depth, columns):  # type: ignore[no-untyped-def]
    """out (columns) = start + a (depth) @ b (depth, columns), all by their addresses."""
    sizes = literals(depth, columns)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        depth, columns = sizes
        out, a, b, start = arguments[:4]
        code = Vectors(builder, columns)
        sums = [cgutils.alloca_once_value(builder, code.load(start))]
        sums += [cgutils.alloca_once_value(builder, code.number(0.0)) for _ in range(TOGETHER - 1)]

        def body(number: int, places: list[Any]) -> None:
            element, row = code.spread_at(places[0]), code.load(places[1])
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
def dot_turned_row(typingctx, out, a, b, columns, depth):  # type: ignore[no-untyped-def]
    """out (columns) = a (depth) @ b (columns, depth).T, all by their addresses."""
    sizes = literals(columns, depth)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        columns, depth = sizes
        out, a, b = arguments[:3]
        code = Vectors(builder, depth)
        errors = code.load(a)

        def body(number: int, places: list[Any]) -> None:
            products = code.multiply(errors, code.load(places[1]))
            code.store_one(code.total(products, ir.Constant(FLOAT, 0.0)), places[0])

        _each_row(code, columns, [(out, 1), (b, depth)], body)
        return context.get_dummy_value()

    return types.void(out, a, b, columns, depth), generate


@intrinsic(prefer_literal=True)
def add_outer_row(typingctx, out, a, b, rows, columns):  # type: ignore[no-untyped-def]
    """out (rows, columns) += a (rows) times b (columns), all by their addresses."""
    sizes = literals(rows, columns)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, columns = sizes
        out, a, b = arguments[:3]
        code = Vectors(builder, columns)
        errors = code.load(b)

        def body(number: int, places: list[Any]) -> None:
            element = code.spread_at(places[1])
            code.store(code.multiply_add(element, errors, code.load(places[0])), places[0])

        _each_row(code, rows, [(out, columns), (a, 1)], body)
        return context.get_dummy_value()

    return types.void(out, a, b, rows, columns), generate
