"""Matrix products by cuBLAS, on row-major arrays in every layout that it supports."""

import ctypes
import threading

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.runtime import memory, streams, toolkit
from pareo.backends.cuda.runtime.cupy_module import cupy
from pareo.device import current
from pareo.errors import DeviceError

WORKSPACE = 32 << 20  # bytes: what cuBLAS recommends for Hopper
LONGEST = 1 << 16  # terms; some of cuBLAS's kernels add all of them one after another
NORMAL, TRANSPOSED = 0, 1
KINDS = {"f": 0, "d": 1, "E": 14, "H": 14}  # cudaDataType; E is bfloat16, H its bits
DOUBLE = 70  # cublasComputeType_t
COMPUTE = {"float32": 68, "tf32": 77, "bfloat16": 75}
DEFAULT = -1  # cublasGemmAlgo_t
_NUMBERS = {
    kind: (real(0), real(1)) for kind, real in (("f", ctypes.c_float), ("d", ctypes.c_double))
}
_local = threading.local()


def multiply(out: Array, a: Array, b: Array, add: bool = False) -> None:
    """out = a @ b, or out += a @ b, for matrices, or for stacks of them along one leading axis.

    The rows or the columns of `a` and `b` must be contiguous, and the rows of `out`. A stack of one
    matrix is broadcast. Long sums are added up in parts, since their error grows with their length.
    """
    depth = a.shape[-1]
    if out.size == 0:
        return
    if depth == 0 and not add:
        out.fill(0)
    elif 0 < depth <= LONGEST:
        _multiply(out, a, b, add)
    else:
        for start in range(0, depth, LONGEST):
            part = slice(start, start + LONGEST)
            _multiply(out, a[..., part], b[..., part, :], add or start > 0)


def _multiply(out: Array, a: Array, b: Array, add: bool) -> None:
    rows, columns = out.shape[-2:]
    depth = a.shape[-1]
    zero, one = _NUMBERS["d" if out.dtype.char == "d" else "f"]
    (first, first_step, first_stack), (second, second_step, second_stack) = _operand(b), _operand(a)
    _, out_step, out_stack = _operand(out)
    real, first_real, second_real = (KINDS[array.dtype.char] for array in (out, b, a))
    # cuBLAS is column-major, so it computes the transposed product b' @ a'.
    sizes = (first, second, columns, rows, depth, ctypes.byref(one))
    left, right, target = (ctypes.c_void_p(array.data.ptr) for array in (b, a, out))
    start = ctypes.byref(one if add else zero)
    how = (_compute(a), DEFAULT)
    with streams.exclusive():  # all products share one workspace
        what = (_handle(), *sizes)
        if out.ndim == 2 or len(out) == 1:  # cuBLAS has more algorithms for this call
            status = _library().cublasGemmEx(
                *what, left, first_real, first_step, right, second_real, second_step,
                start, target, real, out_step, *how,
            )  # fmt: skip
        else:
            status = _library().cublasGemmStridedBatchedEx(
                *what, left, first_real, first_step, ctypes.c_longlong(first_stack),
                right, second_real, second_step, ctypes.c_longlong(second_stack),
                start, target, real, out_step, ctypes.c_longlong(out_stack), len(out), *how,
            )  # fmt: skip
        _check(status)


def _compute(factor: Array) -> int:
    """The cuBLAS compute type for this factor; sums are at least float32."""
    if factor.dtype.char == "d":
        return DOUBLE
    return COMPUTE["float32" if factor.dtype.char in "EH" else current().precision]


def readable(array: Array) -> bool:
    """Whether cuBLAS can read an array: its matrices have contiguous rows or columns."""
    rows, columns = array.shape[-2:]
    down, along = (step // array.itemsize for step in array.strides[-2:])
    return (_adjacent(columns, along) and _apart(rows, down, columns)) or (
        _adjacent(rows, down) and _apart(columns, along, rows)
    )


def _adjacent(count: int, step: int) -> bool:
    return count == 1 or step == 1


def _apart(count: int, step: int, inner: int) -> bool:
    return count == 1 or step >= inner


def _operand(array: Array) -> tuple[int, int, int]:
    """An array as cuBLAS reads it: transposed or not, leading dimension, stride of the stack."""
    rows, columns = array.shape[-2:]
    down, along = (step // array.itemsize for step in array.strides[-2:])
    stack = 0
    if array.ndim == 3 and len(array) > 1:
        stack = array.strides[0] // array.itemsize
    if _adjacent(columns, along) and _apart(rows, down, columns):
        return NORMAL, max(down if rows > 1 else 0, columns, 1), stack
    return TRANSPOSED, max(along if columns > 1 else 0, rows, 1), stack


def missing() -> str | None:
    """Why cuBLAS is not available, in one sentence; None where it is."""
    try:
        _library()
    except DeviceError as error:
        return str(error)
    return None


def standing_bytes() -> int:
    """Bytes of the workspaces that this thread's products keep, one for each GPU in use."""
    handles = _local.__dict__.get("handles", {})
    return sum(int(workspace.nbytes) for _, workspace in handles.values())


def _library() -> ctypes.CDLL:
    return toolkit.library("libcublas.so.13", "nvidia-cublas", "libcublasLt.so.13")


def _handle() -> ctypes.c_void_p:
    """This thread's handle on the current GPU, bound to the current stream."""
    handles = _local.__dict__.setdefault("handles", {})
    device = cupy.cuda.Device().id
    if device not in handles:
        handle = ctypes.c_void_p()
        _check(_library().cublasCreate_v2(ctypes.byref(handle)))
        with cupy.cuda.using_allocator(cupy.get_default_memory_pool().malloc):  # not a graph's pool
            handles[device] = handle, memory.empty((WORKSPACE,), np.uint8)
    handle, workspace = handles[device]
    _check(
        _library().cublasSetStream_v2(handle, ctypes.c_void_p(cupy.cuda.get_current_stream().ptr))
    )
    # Setting the stream resets the workspace. A product can be captured only with its own one.
    _check(
        _library().cublasSetWorkspace_v2(
            handle, ctypes.c_void_p(workspace.data.ptr), ctypes.c_size_t(workspace.nbytes)
        )
    )
    return handle


def _check(status: int) -> None:
    if status:
        describe = _library().cublasGetStatusString
        describe.restype = ctypes.c_char_p
        free, _ = cupy.cuda.runtime.memGetInfo()  # with little, even code cannot be loaded
        raise DeviceError(
            f"cuBLAS failed: {describe(status).decode()}; {free:,} B of GPU memory are free"
        )
