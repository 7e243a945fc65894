"""The BLAS library of NumPy: its threads, its version, and products that add to a matrix."""

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

_lock = threading.Lock()
if hasattr(os, "register_at_fork"):  # a thread that had it does not exist in the child
    os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
_setters: list[Callable[[int], Any]] | None = None
_count: int | None = None


def threads(count: int) -> None:
    """Set the number of threads of NumPy's matrix products, for the whole process.

    >>> threads(1)
    >>> describe()["threads"]
    1
    """
    global _count, _setters
    if count == _count:  # all that a kernel pays if nothing changes
        return
    with _lock:
        if _setters is None:
            _setters = [library.set_num_threads for library in _libraries()]
        for setter in _setters:
            setter(count)
        _count = count


def describe() -> dict[str, Any]:
    """Name, version and present number of threads of NumPy's BLAS; 'unknown' where it is not found.

    >>> sorted(describe())
    ['name', 'threads', 'version']
    """
    for library in _libraries():
        found = library.info()
        return {
            "name": found["internal_api"],
            "version": found["version"] or "unknown",
            "threads": found["num_threads"],
        }
    return {"name": "unknown", "version": "unknown", "threads": "unknown"}


def _libraries() -> list[Any]:
    """The BLAS libraries to control: NumPy's own if it has one, otherwise all that are loaded.

    The BLAS of another framework in the process is left alone, so that comparisons stay fair.
    """
    from threadpoolctl import ThreadpoolController  # only a matrix product needs it

    loaded = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library for library in loaded if "numpy" in library.filepath] or loaded


ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE = 101, 111, 112
_products: dict[str, Any] | None = None


def add_product(out: Any, a: Any, b: Any, alpha: float = 1.0, keep: bool = True) -> None:
    """out += alpha * a @ b for matrices, in one pass over out; with keep=False, out is replaced.

    NumPy does not offer this, so the library is called directly where it is found.

    >>> out = np.ones((1, 1))
    >>> add_product(out, np.array([[2.0, 3.0]]), np.array([[1.0], [1.0]]), alpha=10.0)
    >>> out
    array([[51.]])
    """
    product = _find_products().get(out.dtype.char)
    left, right = layout(a), layout(b)
    target = layout(out)
    if product is None or left is None or right is None or target is None or target[0] == TRANSPOSE:
        whole = np.matmul(a, b)
        np.multiply(whole, out.dtype.type(alpha), out=whole)
        np.add(out, whole, out=out) if keep else np.copyto(out, whole)
        return
    if out.size == 0:
        return
    product(
        ROW_MAJOR, left[0], right[0], out.shape[0], out.shape[1], a.shape[1], alpha,
        a.ctypes.data, left[1], b.ctypes.data, right[1], 1.0 if keep else 0.0,
        out.ctypes.data, target[1],
    )  # fmt: skip


def address(dtype: Any) -> int | None:
    """The address of the library's product for a dtype, for machine code; None if unknown.

    It takes the arguments of `cblas_sgemm` (or dgemm), sizes as 64-bit numbers.
    """
    product = _find_products().get(np.dtype(dtype).char)
    return None if product is None else ctypes.cast(product, ctypes.c_void_p).value


def layout(a: Any) -> tuple[int, int] | None:
    """How BLAS reads a matrix: transposed or not, and its leading dimension; None if it cannot."""
    item = a.itemsize
    rows, columns = a.shape
    down, across = a.strides
    if (across == item or columns == 1) and (down >= columns * item or rows == 1):
        return NO_TRANSPOSE, max(down // item if rows > 1 else columns, columns, 1)
    if (down == item or rows == 1) and (across >= rows * item or columns == 1):
        return TRANSPOSE, max(across // item if columns > 1 else rows, rows, 1)
    return None


def _find_products() -> dict[str, Any]:
    """sgemm and dgemm of NumPy's own BLAS by dtype, with 64-bit sizes; empty where not found."""
    global _products
    if _products is None:
        found = {}
        for library in _libraries():
            loaded = ctypes.CDLL(library.filepath)
            for kind, letter, scalar in (("f", "s", ctypes.c_float), ("d", "d", ctypes.c_double)):
                function = getattr(loaded, f"scipy_cblas_{letter}gemm64_", None)
                if function is not None:
                    size, pointer = ctypes.c_int64, ctypes.c_void_p
                    function.restype = None
                    function.argtypes = [
                        ctypes.c_int, ctypes.c_int, ctypes.c_int, size, size, size, scalar,
                        pointer, size, pointer, size, scalar, pointer, size,
                    ]  # fmt: skip
                    found[kind] = function
        _products = found
    return _products
