"""Products of small constant matrices with tiles of vectors.

A vector holds one pixel of as many channels as a register has lanes. The instructions are written
out here, because the compiler does not vectorise loops of this kind. float32 only.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from pareo.backends.compiled.runtime.jit import llvm_intrinsic
from pareo.backends.compiled.runtime.lanes import call_on_vectors
from pareo.backends.compiled.runtime.llvm_vectors import VectorBuilder

_I64 = ir.IntType(64)
Matrix = Sequence[Sequence[float]]


def transform(matrix: Matrix) -> Any:
    """A compiled function that replaces tiles of vectors X by matrix @ X @ matrix'.

    f(out, out_row, out_column, out_next, given, row, column, step, count): `out` and `given` are
    addresses of the first tile; rows, columns and tiles are so many bytes apart.
    """
    name = "winograd_" + "_".join(f"{x:g}" for row in matrix for x in (len(row), *row))

    @llvm_intrinsic
    def apply(typingctx, out, out_row, out_column, out_next, given, row, column, step, count):  # type: ignore[no-untyped-def]
        signature = types.void(*[types.int64] * 9)

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            call_on_vectors(builder, name, arguments, lambda code, a: _tiles(code, a, matrix))
            return context.get_dummy_value()

        return signature, generate

    return apply


def _tiles(code: VectorBuilder, arguments: Sequence[ir.Value], matrix: Matrix) -> None:
    out, out_row, out_column, out_next, given, row, column, step, count = arguments
    builder = code.builder
    with cgutils.for_range(builder, count) as loop:
        start = builder.add(given, builder.mul(step, loop.index))
        target = builder.add(out, builder.mul(out_next, loop.index))
        size = len(matrix[0])

        def at(first: ir.Value, down: ir.Value, i: int, along: ir.Value, j: int) -> ir.Value:
            moved = builder.add(first, builder.mul(down, _I64(i)))
            return builder.add(moved, builder.mul(along, _I64(j)))

        columns = [
            [_sum(code, weights, loaded) for weights in matrix]
            for j in range(size)
            for loaded in [[code.load(at(start, row, i, column, j)) for i in range(size)]]
        ]
        for i in range(len(matrix)):
            across = [column[i] for column in columns]
            for j, weights in enumerate(matrix):
                code.store(_sum(code, weights, across), at(target, out_row, i, out_column, j))


def _sum(code: VectorBuilder, weights: Sequence[float], given: Sequence[ir.Value]) -> ir.Value:
    """The sum of vectors times their weights; a weight of one needs no product."""
    total = None
    for weight, value in sorted(zip(weights, given, strict=True), key=lambda pair: -pair[0]):
        if weight == 0:
            continue
        if total is None:
            total = value if weight == 1 else code.multiply(code.constant(weight), value)
        elif weight == 1:
            total = code.add(total, value)
        elif weight == -1:
            total = code.subtract(total, value)
        else:
            total = code.multiply_add(code.constant(weight), value, total)
    return total
