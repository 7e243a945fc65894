"""Arrays of float32 at addresses, made and used in compiled code."""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types

from pareo.array import Array
from pareo.backends.compiled.runtime.jit import jit, llvm_intrinsic


@llvm_intrinsic
def _pointer(typingctx, address):  # type: ignore[no-untyped-def]
    """An address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


@jit
def vector_at(address: int, size: int) -> Array:
    """A flat array; whoever owns the memory keeps it alive."""
    return numba.carray(_pointer(address), (size,), np.float32)


@jit
def matrix_at(address: int, rows: int, columns: int) -> Array:
    """A C-contiguous matrix."""
    return numba.carray(_pointer(address), (rows, columns), np.float32)


@jit
def number_at(address: int) -> float:
    """One number."""
    return numba.carray(_pointer(address), (1,), np.float32)[0]
