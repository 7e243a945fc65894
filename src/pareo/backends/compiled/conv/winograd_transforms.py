"""Small fixed matrices times columns of numbers, four columns at a time in registers.

The compiler will not vectorise loops with a dozen streams of data, because it would have to check
that none of them overlap; so the instructions are laid out here. float32 only. Four columns are
always written: whoever calls leaves room for as many.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from pareo.backends.compiled.runtime.jit import emits

LANES = 4
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_FLAGS = ("contract", "nsz")
_I32, _I64 = ir.IntType(32), ir.IntType(64)


def transform(matrix: Sequence[Sequence[float]], *, strung: int = 0, string: int = 0) -> Any:
    """A compiled function f(out, out_gap, given, given_gap, count): out = matrix @ given.

    All are addresses and distances in bytes: row k of `given` lies k * given_gap further on, and so
    for `out`; `count` is the number of columns, divided by four and rounded up. `strung`: the
    columns start one after another instead, so many numbers apart, and overlap where they are
    longer. `string`: so they shall lie in the result, of as many rows.
    """

    @emits
    def apply(typingctx, out, out_gap, given, given_gap, count):  # type: ignore[no-untyped-def]
        signature = types.void(*[types.int64] * 5)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            out, out_gap, given, given_gap, count = arguments
            with cgutils.for_range(builder, count) as loop:
                start = _moved(builder, given, loop.index, strung or 1)
                rows = len(matrix[0])
                if strung:
                    inputs = _strung(builder, start, rows, strung)
                else:
                    inputs = [_load(builder, start, given_gap, k, _VECTOR) for k in range(rows)]
                results = [_sum(builder, weights, inputs) for weights in matrix]
                start = _moved(builder, out, loop.index, string or 1)
                if string:
                    _store(builder, _woven(builder, results), start, out_gap, 0)
                else:
                    for k, result in enumerate(results):
                        _store(builder, result, start, out_gap, k)
            return context.get_dummy_value()

        return signature, generate

    return apply


def _place(builder: Any, start: Any, gap: Any, k: int, kind: Any) -> Any:
    moved = builder.add(start, builder.mul(gap, _I64(k)))
    return builder.inttoptr(moved, kind.as_pointer())


def _load(builder: Any, start: Any, gap: Any, k: int, kind: Any) -> Any:
    return builder.load(_place(builder, start, gap, k, kind), align=4)


def _store(builder: Any, value: Any, start: Any, gap: Any, k: int) -> None:
    builder.store(value, _place(builder, start, gap, k, value.type), align=4)


def _moved(builder: Any, start: Any, index: Any, each: int) -> Any:
    """The address of the next four columns, `each` floats apart."""
    return builder.add(start, builder.mul(index, _I64(4 * LANES * each)))


def _strung(builder: Any, start: Any, rows: int, apart: int) -> list[Any]:
    """Row k of four columns that start `apart` numbers after one another."""
    found = []
    for k in range(rows):
        if k % apart == 0:
            wide = _load(builder, start, _I64(4), k, ir.VectorType(ir.FloatType(), LANES * apart))
        found.append(_shuffled(builder, wide, [k % apart + apart * j for j in range(LANES)]))
    return found


def _woven(builder: Any, rows: list[Any]) -> Any:
    """Rows of four, two or four of them, as columns one after another."""
    pairs = [_shuffled(builder, rows[k], range(8), rows[k + 1]) for k in range(0, len(rows), 2)]
    places = [LANES * row + lane for lane in range(LANES) for row in range(len(rows))]
    return _shuffled(builder, pairs[0], places, pairs[-1])


def _shuffled(builder: Any, first: Any, places: Any, second: Any = None) -> Any:
    places = list(places)
    mask = ir.Constant(ir.VectorType(_I32, len(places)), places)
    other = ir.Constant(first.type, ir.Undefined) if second is None else second
    return builder.shuffle_vector(first, other, mask)


def _sum(builder: Any, weights: Sequence[float], inputs: list[Any]) -> Any:
    """The sum of the inputs times their weights; those of weight one are only added."""
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


def _times(builder: Any, weight: float, value: Any) -> Any:
    return builder.fmul(ir.Constant(_VECTOR, [weight] * LANES), value, flags=_FLAGS)
