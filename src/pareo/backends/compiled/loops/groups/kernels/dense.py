"""Dense layers of a group of images that lie side by side, written as LLVM instructions.

As in `conv`, x[i] is a vector of `lanes` floats, and a tile of sums stays in registers. The
weights (inputs, outputs) are read where they are. All sizes are literals. float32 only.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from pareo.backends.compiled.loops.groups.kernels.conv import block_of
from pareo.backends.compiled.loops.groups.kernels.tiles import SUMS
from pareo.backends.compiled.loops.groups.kernels.vectors import (
    I64,
    QUAD,
    GroupBuilder,
    Variables,
    as_function,
)
from pareo.backends.compiled.runtime import registers
from pareo.backends.compiled.runtime.llvm_vectors import VectorBuilder, literals

# Of the gradient of weights: vectors of columns, and rows, whose sums stay in registers.
VECTORS = 4 if registers.COUNT == 32 else 2
ROWS = 4 if registers.LANES == QUAD else SUMS // VECTORS
UNROLL = 4


def _in_blocks(
    code: GroupBuilder, count: int, block: int, body: Callable[[ir.Value, int], None]
) -> None:
    """body(first, size) for `count` things in blocks; the last block may be smaller."""
    if count // block:
        with code.loop(count // block) as loop:
            body(code.builder.mul(loop.index, I64(block)), block)
    if count % block:
        body(I64(count // block * block), count % block)


def _product(
    code: GroupBuilder,
    out: ir.Value,
    starts: list[ir.Value],
    depth: int,
    taps: Callable[[Variables, ir.Value, int], None],
) -> None:
    """out = sums that begin with `starts`, to which `taps` adds terms until all have been."""
    sums = code.sums(len(starts))
    for start, row in zip(starts, sums, strict=True):
        for total in row:
            code.builder.store(start, total)
    _in_blocks(code, depth, UNROLL, lambda first, count: taps(sums, first, count))
    for f, row in enumerate(sums):
        for q, total in enumerate(row):
            code.store(code.builder.load(total), out, f * code.images + code.lanes * q)


@intrinsic(prefer_literal=True)
def forward(typingctx, y, x, w, b, lanes, inputs, outputs, biased):  # type: ignore[no-untyped-def]
    """y (outputs) = b + x (inputs) @ w (inputs, outputs), without b unless `biased`."""
    sizes = literals(lanes, inputs, outputs, biased)

    def emit(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> None:
        lanes, inputs, outputs, biased = sizes
        y, x, w, b = arguments
        code = GroupBuilder(builder, lanes)

        def tile(first: ir.Value, size: int) -> None:
            bias, columns = code.at(b, (first, 1)), code.at(w, (first, 1))
            zero = code.constant(0.0)
            starts = [code.load_broadcast(bias, f) if biased else zero for f in range(size)]

            def taps(sums: Variables, i: ir.Value, count: int) -> None:
                values, weights = code.at(x, (i, lanes)), code.at(columns, (i, outputs))
                totals = code.load_all(sums)
                for n in range(count):
                    vectors = code.load_group(values, n * lanes)
                    factors = code.load_weights(weights, n * outputs, size)
                    code.multiply_into(totals, factors, vectors)
                code.store_all(totals, sums)

            _product(code, code.at(y, (first, lanes)), starts, inputs, taps)

        _in_blocks(code, outputs, block_of(outputs, lanes), tile)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return as_function(context, builder, "dense_forward", sizes, arguments[:4], emit)

    return types.void(y, x, w, b, lanes, inputs, outputs, biased), generate


@intrinsic(prefer_literal=True)
def input_gradient(typingctx, d, g, w, lanes, inputs, outputs):  # type: ignore[no-untyped-def]
    """d (inputs) = g (outputs) @ w (inputs, outputs).T."""
    sizes = literals(lanes, inputs, outputs)

    def emit(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> None:
        lanes, inputs, outputs = sizes
        d, g, w = arguments
        code = GroupBuilder(builder, lanes)

        def tile(first: ir.Value, size: int) -> None:
            rows = code.at(w, (first, outputs))

            def taps(sums: Variables, o: ir.Value, count: int) -> None:
                values, weights = code.at(g, (o, lanes)), code.at(rows, (o, 1))
                factors = [code.load_weights(weights, f * outputs, count) for f in range(size)]
                totals = code.load_all(sums)
                for n in range(count):
                    vectors = code.load_group(values, n * lanes)
                    code.multiply_into(totals, [row[n] for row in factors], vectors)
                code.store_all(totals, sums)

            starts = [code.constant(0.0)] * size
            _product(code, code.at(d, (first, lanes)), starts, outputs, taps)

        # Weights of each row take a register, too.
        block = max(1, min(8, block_of(inputs, lanes) * 2 // 3))
        _in_blocks(code, inputs, block, tile)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return as_function(context, builder, "dense_input_gradient", sizes, arguments[:3], emit)

    return types.void(d, g, w, lanes, inputs, outputs), generate


def _vectors(outputs: int) -> list[tuple[int, int, list[int]]]:
    """Blocks of columns: how many, the first column, and the widths of a block's vectors.

    >>> [sum(widths) * count for count, _, widths in _vectors(70)]
    [64, 6]
    """
    wide = registers.LANES
    whole, rest = divmod(outputs, VECTORS * wide)
    found = [(whole, 0, [wide] * VECTORS)] if whole else []
    if rest:
        widths = [wide] * (rest // wide) + [rest % wide] * (rest % wide > 0)
        found.append((1, whole * VECTORS * wide, widths))
    return found


@intrinsic(prefer_literal=True)
def weight_gradient(typingctx, gw, x, g, lanes, inputs, outputs):  # type: ignore[no-untyped-def]
    """gw (inputs, outputs) += x (inputs) @ g, of which each image of the group has a row."""
    sizes = literals(lanes, inputs, outputs)

    def emit(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> None:
        lanes, inputs, outputs = sizes
        gw, x, g = arguments
        code, four = GroupBuilder(builder, lanes), VectorBuilder(builder, QUAD)

        def columns(o: ir.Value, widths: list[int]) -> None:
            errors = code.at(g, (o, 1))
            kinds = [VectorBuilder(builder, width) for width in widths]
            starts = [sum(widths[:j]) for j in range(len(widths))]

            def tile(i: ir.Value, rows: int) -> None:
                values, out = code.at(x, (i, lanes)), code.at(gw, (i, outputs), (o, 1))
                sums = [
                    [cgutils.alloca_once(builder, kind.kind) for kind in kinds] for _ in range(rows)
                ]

                def factors(n: int, own: ir.Value, quads: list[Any]) -> list[list[ir.Value]]:
                    """The values of image n, in all lanes of vectors of each kind."""
                    return [
                        [
                            kind.broadcast_lane(quads[r], n)
                            if kind.lanes == QUAD
                            else kind.load_broadcast(own, r * lanes + n)
                            for kind in kinds
                        ]
                        for r in range(rows)
                    ]

                for r in range(rows):
                    for kind, start, place in zip(kinds, starts, sums[r], strict=True):
                        builder.store(kind.load(out, r * outputs + start), place)
                with code.loop(lanes // QUAD) as loop:
                    own = code.at(values, (loop.index, QUAD))
                    line = code.at(errors, (loop.index, QUAD * outputs))
                    quads = [four.load(own, r * lanes) for r in range(rows)]
                    totals = code.load_all(sums)
                    for n in range(QUAD):
                        given = [
                            kind.load(line, n * outputs + start)
                            for kind, start in zip(kinds, starts, strict=True)
                        ]
                        for row, by in zip(totals, factors(n, own, quads), strict=True):
                            for j, kind in enumerate(kinds):
                                row[j] = kind.multiply_add(given[j], by[j], row[j])
                    code.store_all(totals, sums)
                for r in range(rows):
                    for kind, start, place in zip(kinds, starts, sums[r], strict=True):
                        kind.store(builder.load(place), out, r * outputs + start)

            _in_blocks(code, inputs, ROWS, tile)

        for count, first, widths in _vectors(outputs):
            with code.loop(count) as block:
                start = builder.mul(block.index, I64(sum(widths)))
                columns(builder.add(start, I64(first)), widths)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return as_function(context, builder, "dense_weight_gradient", sizes, arguments[:3], emit)

    return types.void(gw, x, g, lanes, inputs, outputs), generate
