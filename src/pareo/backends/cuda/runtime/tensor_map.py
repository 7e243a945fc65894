"""Descriptors of matrices for the tensor copy engine of Hopper GPUs."""

import ctypes
from functools import cache
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.runtime.launch import struct
from pareo.errors import DeviceError

BFLOAT16, SWIZZLE_128, PROMOTE_256 = 9, 3, 3  # CUDA's numbers
WORDS, ALIGNED = 16, 64  # of a descriptor


@cache
def _encode() -> Any:
    return ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled


def bfloat16_matrix(matrix: Array, rows: int, columns: int, box: tuple[int, int]) -> np.ndarray:
    """The descriptor of a contiguous matrix in bfloat16, as a kernel's argument.

    A copy takes a box of rows and columns; what lies beyond the matrix is zero. A row of the box
    has 128 bytes, whose 16-byte pieces are in the order that warpgroup products expect.
    """
    room = ctypes.create_string_buffer(8 * WORDS + ALIGNED)
    start = -(-ctypes.addressof(room) // ALIGNED) * ALIGNED
    sizes, strides = (ctypes.c_uint64 * 2)(columns, rows), (ctypes.c_uint64 * 1)(2 * columns)
    boxes, steps = (ctypes.c_uint32 * 2)(*box[::-1]), (ctypes.c_uint32 * 2)(1, 1)
    failed = _encode()(
        ctypes.c_void_p(start), BFLOAT16, 2, ctypes.c_void_p(matrix.data.ptr), sizes, strides,
        boxes, steps, 0, SWIZZLE_128, PROMOTE_256, 0,
    )  # fmt: skip
    if failed:
        raise DeviceError(f"CUDA refused to describe a {rows} x {columns} matrix: error {failed}")
    return struct(*(ctypes.c_int64 * WORDS).from_address(start))
