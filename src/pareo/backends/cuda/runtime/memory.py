"""GPU memory: allocating, copying and comparing arrays."""

import gc
import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import DTypeLike

from pareo import moving
from pareo.array import Array
from pareo.backends.cuda.runtime.cupy_module import cupy
from pareo.device import current
from pareo.errors import OutOfMemory


def empty(shape: Sequence[int], dtype: DTypeLike) -> Array:
    """A new, uninitialised array."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    return allocated(lambda: cupy.empty(shape, dtype), nbytes)


def allocated(make: Callable[[], Array], nbytes: int) -> Array:
    """The array that `make` allocates, or OutOfMemory with the `nbytes` that it asked for.

    CuPy releases the unused blocks of its pool before it fails.
    """
    try:
        return make()
    except cupy.cuda.memory.OutOfMemoryError:
        gc.collect()  # reference cycles may hold GPU memory
    try:
        return make()
    except cupy.cuda.memory.OutOfMemoryError:
        free, _ = cupy.cuda.runtime.memGetInfo()
        raise OutOfMemory(str(current()), nbytes, free) from None


def to_device(array: Array) -> Array:
    """A host array, copied to the GPU."""
    if isinstance(array, cupy.ndarray):
        return array
    array = np.asarray(array)
    moving.count("to_device", array.nbytes)
    return allocated(lambda: cupy.array(array, order="C"), array.nbytes)


def to_host(array: Array) -> Array:
    """A GPU array, copied to the host."""
    if not isinstance(array, cupy.ndarray):
        return array
    moving.count("to_host", array.nbytes)
    return cupy.asnumpy(array)


def write(target: Array, array: Array) -> None:
    """Copy a host array into an existing GPU array."""
    moving.count("to_device", array.nbytes)
    target.set(np.ascontiguousarray(array, target.dtype))


def number(value: Array) -> Array:
    """A NumPy scalar on the GPU.

    It travels as a kernel argument, so it is not counted as a transfer.
    """
    return _number(value.tobytes(), value.dtype.str, cupy.cuda.runtime.getDevice())


@lru_cache(4096)  # keyed by the bits: 0 and -0 compare equal but differ
def _number(bits: bytes, dtype: str, device: int) -> Array:
    return cupy.full((), np.frombuffer(bits, dtype)[0], dtype)


def share(a: Array, b: Array) -> bool:
    """Whether the address ranges of two arrays overlap."""
    (low, high), (first, last) = span(a), span(b)
    return bool(low < last and first < high)


def span(array: Array) -> tuple[int, int]:
    """The first address of an array's memory, and the one after its last."""
    low = high = array.data.ptr
    if array.flags.c_contiguous:
        return low, low + array.nbytes
    if array.size == 0:
        return low, low
    for size, step in zip(array.shape, array.strides, strict=True):
        low += min(0, (size - 1) * step)
        high += max(0, (size - 1) * step)
    return low, high + array.itemsize
