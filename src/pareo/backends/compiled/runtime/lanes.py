"""Pixels of several channels as vectors: blocks of an image transposed, there and back.

A vector holds one pixel of as many channels as a register has lanes. float32 only.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

from pareo.backends.compiled.runtime import native, registers
from pareo.backends.compiled.runtime.jit import jit, llvm_intrinsic
from pareo.backends.compiled.runtime.llvm_vectors import VectorBuilder

LANES = registers.LANES
VECTOR = 4 * LANES  # bytes
_I32, _I64 = ir.IntType(32), ir.IntType(64)


@jit
def whole_vectors(channels: int) -> int:
    """A number of channels, rounded up; what is computed for those beyond is never read."""
    return -(-channels // LANES) * LANES


padded_channels: Callable[[int], int] = whole_vectors.py_func  # the same, for Python


def call_on_vectors(
    builder: ir.IRBuilder,
    name: str,
    arguments: Sequence[ir.Value],
    write: Callable[[VectorBuilder, Sequence[ir.Value]], None],
) -> None:
    """Call a function of a name, which `write` writes with vectors as wide as a register."""

    def body(inner: ir.IRBuilder, given: Sequence[ir.Value]) -> None:
        write(VectorBuilder(inner, LANES), given)

    native.call(builder, f"{name} of {LANES}", arguments, body)


@llvm_intrinsic
def pixels_to_vectors(typingctx, out, places, plane, gap, channels):  # type: ignore[no-untyped-def]
    """A block of as many pixels as channels, whose vectors go to out + places[pixel].

    plane is the address of the first pixel, planes are `gap` bytes apart, and the last of
    `channels` stands for those that are missing. `places` is the address of bytes as int64.
    """
    signature = types.void(*[types.int64] * 5)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        def write(code: VectorBuilder, arguments: Any) -> None:
            out, places, plane, gap, channels = arguments
            rows = [code.load(_plane(code.builder, plane, gap, channels, i)) for i in range(LANES)]
            for p, vector in enumerate(_transposed(code.builder, rows)):
                code.store(vector, code.builder.add(out, _number(code.builder, places, p)))

        call_on_vectors(builder, "pixels_to_vectors", arguments, write)
        return context.get_dummy_value()

    return signature, generate


@llvm_intrinsic
def vectors_to_pixels(typingctx, plane, gap, channels, given, places, bias, is_relu):  # type: ignore[no-untyped-def]
    """The reverse, with the channels' bias added; with `is_relu`, negative numbers become 0."""
    signature = types.void(*[types.int64] * 7)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        def write(code: VectorBuilder, arguments: Any) -> None:
            plane, gap, channels, given, places, bias, is_relu = arguments
            inner, shift = code.builder, code.load(bias)
            zero, flag = code.constant(0.0), inner.icmp_signed("!=", is_relu, _I64(0))
            rows = []
            for p in range(LANES):
                value = code.load(inner.add(given, _number(inner, places, p)))
                value = code.add(value, shift)
                negative = inner.fcmp_ordered("<=", value, zero)  # false for NaN
                cut = inner.select(negative, zero, value)
                rows.append(inner.select(flag, cut, value))
            for i, row in enumerate(_transposed(inner, rows)):
                with inner.if_then(inner.icmp_signed(">", channels, _I64(i))):
                    code.store(row, inner.add(plane, inner.mul(gap, _I64(i))))

        call_on_vectors(builder, "vectors_to_pixels", arguments, write)
        return context.get_dummy_value()

    return signature, generate


def _plane(
    builder: ir.IRBuilder, first: ir.Value, gap: ir.Value, channels: ir.Value, i: int
) -> ir.Value:
    """The address of plane i, or of the last one where there are fewer."""
    last = builder.sub(channels, _I64(1))
    number = builder.select(builder.icmp_signed("<", _I64(i), last), _I64(i), last)
    return builder.add(first, builder.mul(gap, number))


def _number(builder: ir.IRBuilder, table: ir.Value, index: int) -> ir.Value:
    """An int64 of a table at an address."""
    place = builder.inttoptr(builder.add(table, _I64(8 * index)), _I64.as_pointer())
    return builder.load(place)


def _transposed(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """A square of vectors, transposed: halves of pairs of rows change places, then quarters, ..."""
    size, apart = len(rows), len(rows) // 2
    while apart:
        made = list(rows)
        for i in range(size):
            if i & apart:
                continue
            low = [j if not j & apart else size + j - apart for j in range(size)]
            high = [j + apart if not j & apart else size + j for j in range(size)]
            for at, lanes in ((i, low), (i + apart, high)):
                where = ir.Constant(ir.VectorType(_I32, size), lanes)
                made[at] = builder.shuffle_vector(rows[i], rows[i + apart], where)
        rows, apart = made, apart // 2
    return rows
