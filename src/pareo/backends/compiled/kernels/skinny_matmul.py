"""out = a @ b.T for few rows of a and a large b: eight rows of a and two of b at a time.

BLAS would first copy all of b into an order that pays off when b is read often. With few rows of a
it is read only once, and the copy takes most of the time. float32 only.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from pareo.array import Array
from pareo.backends.compiled.runtime.jit import jit, llvm_intrinsic

LANES, A_ROWS, B_ROWS = 4, 8, 2
SUPPORTED_ROWS = (8, 16, 24, 32)  # of a
MIN_SIZE = 1 << 20  # of b
CACHED = 1 << 13  # floats of a at a time, which stay in the fastest cache
_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, LANES)
_FLAGS = ("contract", "nsz")


@llvm_intrinsic
def _add_dots(typingctx, out, out_row, a, a_row, b, b_row, count):  # type: ignore[no-untyped-def]
    """out[i, j] += the dot product of a[i] and b[j], for eight rows of a and two of b.

    out, a and b are addresses; out_row, a_row and b_row are distances between rows in bytes. count
    is the number of columns divided by four.
    """
    signature = types.void(*[types.int64] * 7)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        out, out_row, a, a_row, b, b_row, count = arguments
        i64 = ir.IntType(64)

        def at(start: ir.Value, row: ir.Value, number: int, kind: ir.Type) -> ir.Value:
            moved = builder.add(start, builder.mul(row, i64(number)))
            return builder.inttoptr(moved, kind.as_pointer())

        zero = ir.Constant(_VECTOR, [0.0] * LANES)
        sums = [
            [cgutils.alloca_once_value(builder, zero) for _ in range(B_ROWS)] for _ in range(A_ROWS)
        ]
        with cgutils.for_range(builder, count) as loop:
            shift = builder.mul(loop.index, i64(4 * LANES))
            left, right = builder.add(a, shift), builder.add(b, shift)
            two = [builder.load(at(right, b_row, j, _VECTOR), align=4) for j in range(B_ROWS)]
            for i in range(A_ROWS):
                one = builder.load(at(left, a_row, i, _VECTOR), align=4)
                for j in range(B_ROWS):
                    product = builder.fmul(one, two[j], flags=_FLAGS)
                    total = builder.fadd(builder.load(sums[i][j]), product, flags=_FLAGS)
                    builder.store(total, sums[i][j])
        for i in range(A_ROWS):
            for j in range(B_ROWS):
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
def matmul_transposed(out: Array, a: Array, b: Array) -> None:
    """out = a @ b.T; a has a multiple of eight rows, b of two, both of four columns."""
    out[:] = 0
    rows, depth = a.shape
    step = max(4, CACHED // rows // 4 * 4)
    # A copy whose rows are an odd distance apart: rows that are a power of two apart would compete
    # for the same places in the cache.
    cached = np.empty((rows, step + 20), a.dtype)
    out_row, cached_row, b_row = out.strides[0], cached.strides[0], b.strides[0]
    for k in range(0, depth, step):
        count = min(step, depth - k)
        for i in range(rows):
            for x in range(count):
                cached[i, x] = a[i, k + x]
        for j in range(0, b.shape[0], B_ROWS):
            right = b.ctypes.data + j * b_row + 4 * k
            for i in range(0, rows, A_ROWS):
                _add_dots(
                    out.ctypes.data + i * out_row + 4 * j, out_row,
                    cached.ctypes.data + i * cached_row, cached_row, right, b_row, count // 4,
                )  # fmt: skip


def suits(a: Array, b: Array) -> bool:
    """Whether a @ b.T is of this kind: few rows of a, and a b too large for the caches."""
    few = a.shape[0] in SUPPORTED_ROWS and a.shape[1] % LANES == 0 and b.shape[0] % B_ROWS == 0
    return bool(few and a.dtype == np.float32 and b.size >= MIN_SIZE)
