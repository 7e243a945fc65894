"""Pieces of some images' planes of one channel, for batch normalisation: vectors, the last masked.

A loop that the compiler vectorises reads 32 or 64 numbers at a time, and leaves most of a plane of
7x7 or 14x14 pixels to scalar code. `rows` pieces of `count` numbers lie `gap` bytes apart, and all
arrays have the same shape. float32 only.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from pareo.backends.compiled.kernels.activations import CLIP, NONE
from pareo.backends.compiled.runtime.jit import llvm_intrinsic
from pareo.backends.compiled.runtime.lanes import LANES, call_on_vectors
from pareo.backends.compiled.runtime.llvm_vectors import MaskedVectors, VectorBuilder

_I64, _FLOAT = ir.IntType(64), ir.FloatType()


@llvm_intrinsic
def piece_moments(typingctx, result, x, gap, rows, count, near):  # type: ignore[no-untyped-def]
    """result, two floats = the sums of the distances from `near`, and of their squares."""
    signature = types.void(*[types.int64] * 5, types.float32)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        call_on_vectors(builder, "piece_moments", arguments, _moments)
        return context.get_dummy_value()

    return signature, generate


@llvm_intrinsic
def normalise_pieces(typingctx, out, x, rest, gap, rows, count, near, by, offset, low, high):  # type: ignore[no-untyped-def]
    """out = (x - near) * by + offset + rest, at least `low` and at most `high`.

    rest is 0 where there is nothing to add.
    """
    signature = types.void(*[types.int64] * 6, *[types.float32] * 5)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        call_on_vectors(builder, "normalise_pieces", arguments, _normalise)
        return context.get_dummy_value()

    return signature, generate


@llvm_intrinsic
def gradient_sums_of_pieces(  # type: ignore[no-untyped-def]
    typingctx, result, d, g, more, y, x, gap, rows, count, kind, mean, by, shift, low, high
):
    """d = g + more through the activation; result = the sums of d and of d times (x - mean).

    y is the result of relu. Without it, the activation `kind` is of (x - mean) * by + shift.
    d, more and y are 0 where there is nothing to write or to read.
    """
    signature = types.void(*[types.int64] * 10, *[types.float32] * 5)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        call_on_vectors(builder, "gradient_sums_of_pieces", arguments, _gradient_sums)
        return context.get_dummy_value()

    return signature, generate


@llvm_intrinsic
def slope_of_pieces(typingctx, out, d, x, gap, rows, count, mean, by, level, tilt):  # type: ignore[no-untyped-def]
    """out = by * (d - level - (x - mean) * tilt); it may be the memory of d."""
    signature = types.void(*[types.int64] * 6, *[types.float32] * 4)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        call_on_vectors(builder, "slope_of_pieces", arguments, _slope)
        return context.get_dummy_value()

    return signature, generate


def _each_vector(
    code: VectorBuilder,
    arrays: Sequence[ir.Value],
    gap: ir.Value,
    rows: ir.Value,
    count: ir.Value,
    body: Callable[[VectorBuilder, list[ir.Value]], None],
) -> None:
    """Write body for all vectors of all pieces, with the addresses in each array."""
    builder = code.builder
    left = builder.and_(count, _I64(LANES - 1))
    whole = builder.lshr(builder.sub(count, left), _I64(LANES.bit_length() - 1))
    masked = MaskedVectors(builder, LANES, left)
    with cgutils.for_range(builder, rows) as row:
        moved = builder.mul(gap, row.index)
        with cgutils.for_range(builder, whole) as at:
            place = builder.add(moved, builder.mul(at.index, _I64(4 * LANES)))
            body(code, [builder.add(array, place) for array in arrays])
        with builder.if_then(builder.icmp_signed(">", left, _I64(0))):
            place = builder.add(moved, builder.mul(whole, _I64(4 * LANES)))
            body(masked, [builder.add(array, place) for array in arrays])


def _sums(code: VectorBuilder) -> list[ir.Value]:
    """Two vectors of sums, of nothing so far."""
    return [cgutils.alloca_once_value(code.builder, code.constant(0.0)) for _ in range(2)]


def _store_sums(code: VectorBuilder, sums: Sequence[ir.Value], result: ir.Value) -> None:
    for i, total in enumerate(sums):
        number = code.reduce_add(code.builder.load(total), ir.Constant(_FLOAT, 0.0))
        code.store_scalar(number, result, i)


def _moments(code: VectorBuilder, arguments: Sequence[ir.Value]) -> None:
    result, x, gap, rows, count, near = arguments
    centre, sums, builder = code.broadcast(near), _sums(code), code.builder

    def add(each: VectorBuilder, addresses: list[ir.Value]) -> None:
        distance = each.kept(each.subtract(each.load(addresses[0]), centre))
        first, second = (builder.load(total) for total in sums)
        builder.store(each.add(first, distance), sums[0])
        builder.store(each.multiply_add(distance, distance, second), sums[1])

    _each_vector(code, [x], gap, rows, count, add)
    _store_sums(code, sums, result)


def _normalise(code: VectorBuilder, arguments: Sequence[ir.Value]) -> None:
    out, x, rest, gap, rows, count, *numbers = arguments
    near, by, offset, low, high = (code.broadcast(number) for number in numbers)
    builder = code.builder
    has_rest = builder.icmp_signed("!=", rest, _I64(0))
    value = cgutils.alloca_once(builder, code.kind)

    def write(each: VectorBuilder, addresses: list[ir.Value]) -> None:
        distance = each.subtract(each.load(addresses[1]), near)
        builder.store(each.multiply_add(distance, by, offset), value)
        with builder.if_then(has_rest):
            builder.store(each.add(builder.load(value), each.load(addresses[2])), value)
        y = builder.load(value)  # both comparisons are false for NaN
        y = builder.select(builder.fcmp_ordered("<=", y, low), low, y)
        y = builder.select(builder.fcmp_ordered(">", y, high), high, y)
        each.store(y, addresses[0])

    _each_vector(code, [out, x, rest], gap, rows, count, write)


def _gradient_sums(code: VectorBuilder, arguments: Sequence[ir.Value]) -> None:
    result, d, g, more, y, x, gap, rows, count, kind, *numbers = arguments
    mean, by, shift, low, high = (code.broadcast(number) for number in numbers)
    builder, sums = code.builder, _sums(code)
    has_more, has_result, is_written = (
        builder.icmp_signed("!=", address, _I64(0)) for address in (more, y, d)
    )
    is_active = builder.icmp_signed("!=", kind, _I64(NONE))
    is_clip = builder.icmp_signed("==", kind, _I64(CLIP))
    value, zero = cgutils.alloca_once(builder, code.kind), code.constant(0.0)

    def add(each: VectorBuilder, addresses: list[ir.Value]) -> None:
        distance = each.subtract(each.load(addresses[4]), mean)
        builder.store(each.load(addresses[1]), value)
        with builder.if_then(has_more):
            builder.store(each.add(builder.load(value), each.load(addresses[2])), value)
        with builder.if_else(has_result) as (by_result, otherwise):
            with by_result:
                negative = builder.fcmp_ordered("<=", each.load(addresses[3]), zero)
                builder.store(builder.select(negative, zero, builder.load(value)), value)
            with otherwise, builder.if_then(is_active):
                z = each.multiply_add(distance, by, shift)
                within = builder.and_(
                    builder.fcmp_ordered(">", z, low), builder.fcmp_ordered("<", z, high)
                )
                positive = builder.fcmp_unordered(">", z, zero)  # true for NaN
                passes = builder.select(is_clip, within, positive)
                builder.store(builder.select(passes, builder.load(value), zero), value)
        given = builder.load(value)
        with builder.if_then(is_written):
            each.store(given, addresses[0])
        first, second = (builder.load(total) for total in sums)
        builder.store(each.add(first, given), sums[0])
        builder.store(each.multiply_add(given, distance, second), sums[1])

    _each_vector(code, [d, g, more, y, x], gap, rows, count, add)
    _store_sums(code, sums, result)


def _slope(code: VectorBuilder, arguments: Sequence[ir.Value]) -> None:
    out, d, x, gap, rows, count, *numbers = arguments
    mean, by, level, tilt = (code.broadcast(number) for number in numbers)

    def write(each: VectorBuilder, addresses: list[ir.Value]) -> None:
        distance = each.subtract(each.load(addresses[2]), mean)
        height = each.subtract(each.load(addresses[1]), level)
        lowered = each.subtract(height, each.multiply(distance, tilt))
        each.store(each.multiply(by, lowered), addresses[0])

    _each_vector(code, [out, d, x], gap, rows, count, write)
