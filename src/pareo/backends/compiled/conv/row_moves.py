"""Copies and sums of short rows of float32, whole or every second number of them, by address.

The rows of windows are often ten or twenty numbers long: slices of arrays would cost more than the
numbers, and the compiler does not vectorise steps of two. Nothing after the last one is touched.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from pareo.backends.compiled.runtime.jit import llvm_intrinsic

LANES = 8
_FLOAT, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)


def _mover(step: int, spread: bool) -> Any:
    """A compiled function f(out, given, count).

    Without `spread`, out[j] = given[step * j]; otherwise out[step * j] += given[j].
    """
    narrow, wide = ir.VectorType(_FLOAT, LANES), ir.VectorType(_FLOAT, step * LANES)

    @llvm_intrinsic
    def move(typingctx, out, given, count):  # type: ignore[no-untyped-def]
        signature = types.void(*[types.int64] * 3)

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            out, given, count = arguments
            # A wide vector ends step - 1 numbers after its last: one that may not be there.
            groups = builder.sdiv(builder.sub(count, _I64(step - 1)), _I64(LANES))

            def at(start: ir.Value, index: ir.Value, each: int, kind: ir.Type) -> ir.Value:
                moved = builder.add(start, builder.mul(index, _I64(4 * each)))
                return builder.inttoptr(moved, kind.as_pointer())

            def one(index: ir.Value, kinds: tuple[ir.Type, ir.Type], lanes: int) -> None:
                few, many = kinds
                if not spread:
                    source = builder.load(at(given, index, step * lanes, many), align=4)
                    builder.store(_every(builder, source, step), at(out, index, lanes, few), 4)
                    return
                source = builder.load(at(given, index, lanes, few), align=4)
                place = at(out, index, step * lanes, many)
                total = builder.fadd(builder.load(place, align=4), _apart(builder, source, step))
                builder.store(total, place, 4)

            with cgutils.for_range(builder, groups) as loop:
                one(loop.index, (narrow, wide), LANES)
            with cgutils.for_range(builder, count, builder.mul(groups, _I64(LANES))) as loop:
                one(loop.index, (_FLOAT, _FLOAT), 1)
            return context.get_dummy_value()

        return signature, generate

    return move


def _every(builder: ir.IRBuilder, value: ir.Value, step: int) -> ir.Value:
    """The first of every `step` lanes; a single number is its own."""
    if step == 1 or value.type == _FLOAT:
        return value
    mask = ir.Constant(ir.VectorType(_I32, LANES), [step * lane for lane in range(LANES)])
    return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), mask)


def _apart(builder: ir.IRBuilder, value: ir.Value, step: int) -> ir.Value:
    """The lanes `step` apart, with zeros between them."""
    if step == 1 or value.type == _FLOAT:
        return value
    lanes = [place // step if place % step == 0 else LANES for place in range(step * LANES)]
    mask = ir.Constant(ir.VectorType(_I32, step * LANES), lanes)
    return builder.shuffle_vector(value, ir.Constant(value.type, [0.0] * LANES), mask)


copy_row, copy_every_second = _mover(1, False), _mover(2, False)
add_row, add_to_every_second = _mover(1, True), _mover(2, True)
