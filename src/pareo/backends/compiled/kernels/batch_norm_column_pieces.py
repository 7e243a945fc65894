"""Rows of some columns of a matrix, for batch normalisation: a vector holds neighbouring columns.

Arrays of rows are given by an address and the bytes to the next row, one number a column by an
address. float32 only.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

from pareo.backends.compiled.kernels.vectors_of_columns import (
    clear,
    each_group,
    each_row,
    load_row,
    places,
    store_row,
)
from pareo.backends.compiled.runtime.jit import llvm_intrinsic
from pareo.backends.compiled.runtime.lanes import LANES, call_on_vectors
from pareo.backends.compiled.runtime.llvm_vectors import VectorBuilder

ANY, POSITIVE, WITHIN = range(3)  # where a gradient passes
_I64 = ir.IntType(64)


@llvm_intrinsic
def column_moments(typingctx, first, second, x, gap, rows, count, near):  # type: ignore[no-untyped-def]
    """first = the sums of each column's distances from `near`; second = those of their squares."""
    signature = types.void(*[types.int64] * 7)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        call_on_vectors(builder, "column_moments", arguments, _moments)
        return context.get_dummy_value()

    return signature, generate


@llvm_intrinsic
def normalise_columns(typingctx, out, out_gap, x, gap, rows, count, mean, by, shift, low, high):  # type: ignore[no-untyped-def]
    """out = (x - mean) * by + shift, at least `low` and at most `high`."""
    signature = types.void(*[types.int64] * 9, *[types.float32] * 2)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        call_on_vectors(builder, "normalise_columns", arguments, _normalise)
        return context.get_dummy_value()

    return signature, generate


@llvm_intrinsic
def column_gradient_sums(  # type: ignore[no-untyped-def]
    typingctx, total, inner, d, d_gap, g, g_gap, x, gap, rows, count, mean, by, shift, passes,
    low, high,
):  # fmt: skip
    """d = g where it passes; total = the sums of d; inner = those of d times (x - mean).

    passes: ANY, or POSITIVE or WITHIN `low` and `high`, which is said of (x - mean) * by + shift.
    d may be the memory of g.
    """
    signature = types.void(*[types.int64] * 14, *[types.float32] * 2)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        call_on_vectors(builder, "column_gradient_sums", arguments, _gradient_sums)
        return context.get_dummy_value()

    return signature, generate


@llvm_intrinsic
def column_slopes(typingctx, out, out_gap, x, gap, rows, count, mean, by, level, tilt):  # type: ignore[no-untyped-def]
    """out = by * (out - level - (x - mean) * tilt)."""
    signature = types.void(*[types.int64] * 10)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        call_on_vectors(builder, "column_slopes", arguments, _slopes)
        return context.get_dummy_value()

    return signature, generate


def _moments(code: VectorBuilder, arguments: Sequence[ir.Value]) -> None:
    first, second, x, gap, rows, count, near = arguments
    builder = code.builder

    def write(columns: Sequence[VectorBuilder], offset: ir.Value) -> None:
        centre = load_row(columns, near, offset)
        sums, squares = places(code, len(columns)), places(code, len(columns))
        clear(code, [*sums, *squares])

        def add(addresses: list[ir.Value]) -> None:
            for j, each in enumerate(columns):
                distance = each.subtract(each.load(addresses[0], LANES * j), centre[j])
                builder.store(each.add(builder.load(sums[j]), distance), sums[j])
                square = each.multiply_add(distance, distance, builder.load(squares[j]))
                builder.store(square, squares[j])

        each_row(code, rows, offset, [(x, gap)], add)
        store_row(columns, sums, first, offset)
        store_row(columns, squares, second, offset)

    each_group(code, count, write)


def _normalise(code: VectorBuilder, arguments: Sequence[ir.Value]) -> None:
    out, out_gap, x, gap, rows, count, mean, by, shift, *limits = arguments
    builder = code.builder
    low, high = (code.broadcast(limit) for limit in limits)

    def write(columns: Sequence[VectorBuilder], offset: ir.Value) -> None:
        centre, factor, level = (load_row(columns, row, offset) for row in (mean, by, shift))

        def one(addresses: list[ir.Value]) -> None:
            for j, each in enumerate(columns):
                distance = each.subtract(each.load(addresses[1], LANES * j), centre[j])
                y = each.multiply_add(distance, factor[j], level[j])
                # Both comparisons are false for NaN.
                y = builder.select(builder.fcmp_ordered("<=", y, low), low, y)
                y = builder.select(builder.fcmp_ordered(">", y, high), high, y)
                each.store(y, addresses[0], LANES * j)

        each_row(code, rows, offset, [(out, out_gap), (x, gap)], one)

    each_group(code, count, write)


def _gradient_sums(code: VectorBuilder, arguments: Sequence[ir.Value]) -> None:
    total, inner, d, d_gap, g, g_gap, x, gap, rows, count, mean, by, shift, passes, *limits = (
        arguments
    )
    builder = code.builder
    low, high = (code.broadcast(limit) for limit in limits)
    zero = code.constant(0.0)
    is_any, is_within = (builder.icmp_signed("==", passes, _I64(which)) for which in (ANY, WITHIN))

    def write(columns: Sequence[VectorBuilder], offset: ir.Value) -> None:
        centre, factor, level = (load_row(columns, row, offset) for row in (mean, by, shift))
        sums, products = places(code, len(columns)), places(code, len(columns))
        clear(code, [*sums, *products])

        def add(addresses: list[ir.Value]) -> None:
            for j, each in enumerate(columns):
                given = each.load(addresses[1], LANES * j)
                distance = each.subtract(each.load(addresses[2], LANES * j), centre[j])
                z = each.multiply_add(distance, factor[j], level[j])
                within = builder.and_(
                    builder.fcmp_ordered(">", z, low), builder.fcmp_ordered("<", z, high)
                )
                positive = builder.fcmp_unordered(">", z, zero)  # true for NaN
                kept = builder.select(builder.select(is_within, within, positive), given, zero)
                kept = builder.select(is_any, given, kept)
                each.store(kept, addresses[0], LANES * j)
                builder.store(each.add(builder.load(sums[j]), kept), sums[j])
                product = each.multiply_add(kept, distance, builder.load(products[j]))
                builder.store(product, products[j])

        each_row(code, rows, offset, [(d, d_gap), (g, g_gap), (x, gap)], add)
        store_row(columns, sums, total, offset)
        store_row(columns, products, inner, offset)

    each_group(code, count, write)


def _slopes(code: VectorBuilder, arguments: Sequence[ir.Value]) -> None:
    out, out_gap, x, gap, rows, count, *vectors = arguments

    def write(columns: Sequence[VectorBuilder], offset: ir.Value) -> None:
        centre, factor, level, tilt = (load_row(columns, row, offset) for row in vectors)

        def one(addresses: list[ir.Value]) -> None:
            for j, each in enumerate(columns):
                distance = each.subtract(each.load(addresses[1], LANES * j), centre[j])
                height = each.subtract(each.load(addresses[0], LANES * j), level[j])
                lowered = each.subtract(height, each.multiply(distance, tilt[j]))
                each.store(each.multiply(factor[j], lowered), addresses[0], LANES * j)

        each_row(code, rows, offset, [(out, out_gap), (x, gap)], one)

    each_group(code, count, write)
