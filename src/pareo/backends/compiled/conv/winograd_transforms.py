"""Products of a small constant matrix with columns of numbers, some columns at a time.

The compiler does not vectorise loops over a dozen arrays, because it would have to check that none
of them overlap. So the instructions are written out here. float32 only. Whole groups of columns are
written: the caller must leave space for them.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from pareo.backends.compiled.runtime.jit import llvm_intrinsic

LANES = 4
WIDE_LANES = 16  # where a row is long enough
_FLAGS = ("contract", "nsz")
_I32, _I64 = ir.IntType(32), ir.IntType(64)


def transform(
    matrix: Sequence[Sequence[float]],
    *,
    interleaved: int = 0,
    interleave: int = 0,
    lanes: int = LANES,
) -> Any:
    """A compiled function f(out, out_gap, given, given_gap, count): out = matrix @ given.

    `out` and `given` are addresses; the gaps are the distances between rows in bytes; `count` is
    the number of columns, divided by `lanes` and rounded up.

    Args:
        interleaved: the columns of `given` are contiguous instead, and start this many numbers
            after one another; they overlap if they are longer.
        interleave: the columns of the result are contiguous, with this many rows.
        lanes: how many columns are done at a time; four if they are contiguous.
    """

    vector = ir.VectorType(ir.FloatType(), lanes)

    @llvm_intrinsic
    def apply(typingctx, out, out_gap, given, given_gap, count):  # type: ignore[no-untyped-def]
        signature = types.void(*[types.int64] * 5)

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            out, out_gap, given, given_gap, count = arguments
            with cgutils.for_range(builder, count) as loop:
                start = _advance(builder, given, loop.index, lanes * (interleaved or 1))
                rows = len(matrix[0])
                if interleaved:
                    inputs = _load_interleaved(builder, start, rows, interleaved)
                else:
                    inputs = [_load(builder, start, given_gap, k, vector) for k in range(rows)]
                results = [_sum(builder, weights, inputs) for weights in matrix]
                start = _advance(builder, out, loop.index, lanes * (interleave or 1))
                if interleave:
                    _store(builder, _interleave(builder, results), start, out_gap, 0)
                else:
                    for k, result in enumerate(results):
                        _store(builder, result, start, out_gap, k)
            return context.get_dummy_value()

        return signature, generate

    return apply


def _place(
    builder: ir.IRBuilder, start: ir.Value, gap: ir.Value, k: int, kind: ir.Type
) -> ir.Value:
    moved = builder.add(start, builder.mul(gap, _I64(k)))
    return builder.inttoptr(moved, kind.as_pointer())


def _load(builder: ir.IRBuilder, start: ir.Value, gap: ir.Value, k: int, kind: ir.Type) -> ir.Value:
    return builder.load(_place(builder, start, gap, k, kind), align=4)


def _store(builder: ir.IRBuilder, value: ir.Value, start: ir.Value, gap: ir.Value, k: int) -> None:
    builder.store(value, _place(builder, start, gap, k, value.type), align=4)


def _advance(builder: ir.IRBuilder, start: ir.Value, index: ir.Value, each: int) -> ir.Value:
    """The address of group number `index` of columns, each of so many floats."""
    return builder.add(start, builder.mul(index, _I64(4 * each)))


def _load_interleaved(
    builder: ir.IRBuilder, start: ir.Value, rows: int, apart: int
) -> list[ir.Value]:
    """Each row of four columns that start `apart` numbers after one another."""
    found = []
    for k in range(rows):
        if k % apart == 0:
            wide = _load(builder, start, _I64(4), k, ir.VectorType(ir.FloatType(), LANES * apart))
        found.append(_shuffle(builder, wide, [k % apart + apart * j for j in range(LANES)]))
    return found


def _interleave(builder: ir.IRBuilder, rows: list[ir.Value]) -> ir.Value:
    """Two or four rows of four numbers, as contiguous columns."""
    pairs = [_shuffle(builder, rows[k], range(8), rows[k + 1]) for k in range(0, len(rows), 2)]
    places = [LANES * row + lane for lane in range(LANES) for row in range(len(rows))]
    return _shuffle(builder, pairs[0], places, pairs[-1])


def _shuffle(
    builder: ir.IRBuilder, first: ir.Value, places: Iterable[int], second: ir.Value = None
) -> ir.Value:
    places = list(places)
    mask = ir.Constant(ir.VectorType(_I32, len(places)), places)
    other = ir.Constant(first.type, ir.Undefined) if second is None else second
    return builder.shuffle_vector(first, other, mask)


def _sum(builder: ir.IRBuilder, weights: Sequence[float], inputs: list[ir.Value]) -> ir.Value:
    """The sum of the inputs times their weights; a weight of one needs no product."""
    total = None
    for weight, value in sorted(zip(weights, inputs, strict=True), key=lambda pair: -pair[0]):
        if weight == 0:
            continue
        if total is None:
            total = value if weight == 1 else _times(builder, weight, value)
        elif weight == 1:
            total = builder.fadd(total, value, flags=_FLAGS)
        elif weight == -1:
            total = builder.fsub(total, value, flags=_FLAGS)
        else:
            total = builder.fadd(total, _times(builder, weight, value), flags=_FLAGS)
    return total


def _times(builder: ir.IRBuilder, weight: float, value: ir.Value) -> ir.Value:
    return builder.fmul(ir.Constant(value.type, [weight] * value.type.count), value, flags=_FLAGS)
