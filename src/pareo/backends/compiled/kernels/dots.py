"""out = a @ b.T for few rows of a and a large b: eight rows of a with two of b in registers.

BLAS would first copy all of b into an order that pays when it is read often. Here it is read once:
with so few rows that is all there is to gain. float32 only.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from pareo.backends.compiled.runtime.jit import emits, jit

LANES, ROWS, PAIR = 4, 8, 2
MANY = (8, 16, 24, 32)  # rows of a
LARGE = 1 << 20
NEAR = 1 << 13  # floats of a at a time, which stay in the nearest cache
_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, LANES)
_FLAGS = ("contract", "nsz")


@emits
def _add_dots(typingctx, out, out_row, a, a_row, b, b_row, count):  # type: ignore[no-untyped-def]
    """out[i, j] += the dot product of a[i] and b[j], for eight rows of a and two of b.

    Addresses and distances of rows in bytes; count is the number of floats divided by four.
    """
    signature = types.void(*[types.int64] * 7)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        out, out_row, a, a_row, b, b_row, count = arguments
        i64 = ir.IntType(64)

        def at(start: Any, row: Any, number: int, kind: Any) -> Any:
            moved = builder.add(start, builder.mul(row, i64(number)))
            return builder.inttoptr(moved, kind.as_pointer())

        zero = ir.Constant(_VECTOR, [0.0] * LANES)
        sums = [
            [cgutils.alloca_once_value(builder, zero) for _ in range(PAIR)] for _ in range(ROWS)
        ]
        with cgutils.for_range(builder, count) as loop:
            shift = builder.mul(loop.index, i64(4 * LANES))
            left, right = builder.add(a, shift), builder.add(b, shift)
            two = [builder.load(at(right, b_row, j, _VECTOR), align=4) for j in range(PAIR)]
            for i in range(ROWS):
                one = builder.load(at(left, a_row, i, _VECTOR), align=4)
                for j in range(PAIR):
                    product = builder.fmul(one, two[j], flags=_FLAGS)
                    total = builder.fadd(builder.load(sums[i][j]), product, flags=_FLAGS)
                    builder.store(total, sums[i][j])
        for i in range(ROWS):
            for j in range(PAIR):
                place = at(builder.add(out, i64(4 * j)), out_row, i, _FLOAT)
                total = builder.load(place)
                vector = builder.load(sums[i][j])
                for lane in range(LANES):
                    one = builder.extract_element(vector, ir.IntType(32)(lane))
                    total = builder.fadd(total, one)
                builder.store(total, place)
        return context.get_dummy_value()

    return signature, generate


@jit
def turned(out: Any, a: Any, b: Any) -> None:
    """out = a @ b.T; a has a multiple of eight rows, b of two, both of four columns."""
    out[:] = 0
    rows, depth = a.shape
    step = max(4, NEAR // rows // 4 * 4)
    # A copy whose rows lie an odd way apart: thousands of floats apart they would share few places
    # in the cache.
    near = np.empty((rows, step + 20), a.dtype)
    out_row, near_row, b_row = out.strides[0], near.strides[0], b.strides[0]
    for k in range(0, depth, step):
        count = min(step, depth - k)
        for i in range(rows):
            for x in range(count):
                near[i, x] = a[i, k + x]
        for j in range(0, b.shape[0], PAIR):
            right = b.ctypes.data + j * b_row + 4 * k
            for i in range(0, rows, ROWS):
                _add_dots(
                    out.ctypes.data + i * out_row + 4 * j, out_row,
                    near.ctypes.data + i * near_row, near_row, right, b_row, count // 4,
                )  # fmt: skip


def suits(a: Any, b: Any) -> bool:
    """Whether a @ b.T is of this kind: few rows of a, and a b that is read from memory."""
    few = a.shape[0] in MANY and a.shape[1] % LANES == 0 and b.shape[0] % PAIR == 0
    return bool(few and a.dtype == np.float32 and b.size >= LARGE)
