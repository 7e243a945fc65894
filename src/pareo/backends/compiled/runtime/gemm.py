"""BLAS's matrix product, called from compiled code, and so that a recording has it."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from pareo.backends import blas
from pareo.backends.compiled.runtime import recording
from pareo.backends.compiled.runtime.jit import jit, llvm_intrinsic


@jit
def gemm(
    function: int,
    out: np.ndarray,
    a: np.ndarray,
    transpose_a: bool,
    b: np.ndarray,
    transpose_b: bool,
    alpha: float,
    beta: float,
) -> None:
    """out = alpha * a @ b + beta * out, with a or b transposed on request.

    `function` is the address of BLAS's product (see `blas.address`).
    """
    if out.size == 0:
        return
    depth = a.shape[0] if transpose_a else a.shape[1]
    call_gemm(
        function, 112 if transpose_a else 111, 112 if transpose_b else 111,
        out.shape[0], out.shape[1], depth, alpha, a.ctypes.data, _row_stride(a),
        b.ctypes.data, _row_stride(b), beta, out.ctypes.data, _row_stride(out),
    )  # fmt: skip


@jit
def _row_stride(a: np.ndarray) -> int:
    """The distance between a matrix's rows in elements; for a single row its length."""
    return max(a.strides[0] // a.itemsize, a.shape[1]) if a.shape[0] > 1 else a.shape[1]


@llvm_intrinsic
def call_gemm(typingctx, function, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):  # type: ignore[no-untyped-def]
    """Call the BLAS function at an address, on row-major matrices at addresses."""
    whole, real = types.int64, alpha
    signature = types.void(
        whole, whole, whole, whole, whole, whole, real, whole, whole, whole, whole, real, whole,
        whole,
    )  # fmt: skip

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = arguments
        i32, i64, pointer = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(
            ir.VoidType(),
            [i32] * 3 + [i64] * 3 + [alpha.type] + [pointer, i64] * 2
            + [alpha.type, pointer, i64],
        )  # fmt: skip
        function = builder.inttoptr(address, kind.as_pointer())

        def at(address: Any) -> Any:
            return builder.inttoptr(address, pointer)

        builder.call(
            function,
            [i32(101), builder.trunc(ta, i32), builder.trunc(tb, i32), m, n, k, alpha, at(a), lda,
             at(b), ldb, beta, at(c), ldc],
        )  # fmt: skip
        return context.get_dummy_value()

    return signature, generate


@jit
def _product(
    function: int, ta: int, tb: int, m: int, n: int, k: int, alpha: np.ndarray, a: int, lda: int,
    b: int, ldb: int, beta: float, c: int, ldc: int,
) -> None:  # fmt: skip
    call_gemm(function, ta, tb, m, n, k, alpha[0], a, lda, b, ldb, beta, c, ldc)


@jit
def _difference(
    function: int, ta: int, tb: int, m: int, n: int, k: int, alpha: np.ndarray, a: int, lda: int,
    b: int, ldb: int, beta: float, c: int, ldc: int,
) -> None:  # fmt: skip
    call_gemm(function, ta, tb, m, n, k, -alpha[0], a, lda, b, ldb, beta, c, ldc)


def product(out: np.ndarray, a: np.ndarray, b: np.ndarray, keep: bool = False) -> None:
    """out = a @ b for matrices, or with `keep` out += a @ b, in this thread.

    The caller has set BLAS to one thread. Where BLAS cannot be called directly, NumPy is.

    >>> out = np.ones((1, 1))
    >>> product(out, np.array([[2.0, 3.0]]), np.array([[1.0], [1.0]]), keep=True)
    >>> out
    array([[6.]])
    """
    if not _by_blas(_product, out, a, b, np.ones(1, out.dtype), keep):
        blas.add_product(out, a, b, keep=keep)


def subtract(out: np.ndarray, a: np.ndarray, b: np.ndarray, factor: np.ndarray) -> None:
    """out -= factor * a @ b for matrices and a number, likewise.

    >>> out = np.ones((1, 1))
    >>> subtract(out, np.array([[2.0, 3.0]]), np.array([[1.0], [1.0]]), np.array(0.1))
    >>> out
    array([[0.5]])
    """
    if not _by_blas(_difference, out, a, b, factor.reshape(-1), True):
        blas.add_product(out, a, b, -factor.item())


def _by_blas(
    function: Any, out: np.ndarray, a: np.ndarray, b: np.ndarray, alpha: np.ndarray, keep: bool
) -> bool:
    """Let BLAS compute a product, if it can be called directly for these matrices."""
    address = blas.address(out.dtype)
    target, left, right = blas.layout(out), blas.layout(a), blas.layout(b)
    if (
        address is None
        or target is None
        or left is None
        or right is None
        or target[0] == blas.TRANSPOSE
        or alpha.dtype != out.dtype
    ):
        recording.refuse("a product that is left to NumPy")
        return False
    if out.size:
        function(
            address, left[0], right[0], *out.shape, a.shape[1], alpha, a.ctypes.data, left[1],
            b.ctypes.data, right[1], out.dtype.type(keep), out.ctypes.data, target[1],
        )  # fmt: skip
    return True
