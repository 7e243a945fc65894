"""Memory of the card: arrays made, moved and compared."""

import gc
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from pareo import moving
from pareo.backends.cuda.runtime.cupy_module import cupy
from pareo.device import current
from pareo.errors import OutOfMemory


def empty(shape: Any, dtype: Any) -> Any:
    """A new array, its elements not set."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    return allocated(lambda: cupy.empty(shape, dtype), nbytes)


def allocated(make: Callable[[], Any], nbytes: int) -> Any:
    """What `make` makes, of so many bytes; CuPy gives up what its pool holds unused first."""
    try:
        return make()
    except cupy.cuda.memory.OutOfMemoryError:
        gc.collect()  # what only refers to itself holds memory, too
    try:
        return make()
    except cupy.cuda.memory.OutOfMemoryError:
        free, _ = cupy.cuda.runtime.memGetInfo()
        raise OutOfMemory(str(current()), nbytes, free) from None


def to_device(array: Any) -> Any:
    """An array of the host on the card."""
    if isinstance(array, cupy.ndarray):
        return array
    array = np.asarray(array)
    moving.count("to_device", array.nbytes)
    return allocated(lambda: cupy.array(array, order="C"), array.nbytes)


def to_host(array: Any) -> Any:
    """An array of the card on the host."""
    if not isinstance(array, cupy.ndarray):
        return array
    moving.count("to_host", array.nbytes)
    return cupy.asnumpy(array)


def write(target: Any, array: Any) -> None:
    """An array of the host, over one of the card."""
    moving.count("to_device", array.nbytes)
    target.set(np.ascontiguousarray(array, target.dtype))


def number(value: Any) -> Any:
    """A NumPy number on the card: it goes with a launch, as arguments do, and is not a transfer."""
    return _number(value.tobytes(), value.dtype.str, cupy.cuda.runtime.getDevice())


@lru_cache(4096)  # by its bits: 0 and -0 are equal, and not the same
def _number(bits: bytes, dtype: str, device: int) -> Any:
    return cupy.full((), np.frombuffer(bits, dtype)[0], dtype)


def share(a: Any, b: Any) -> bool:
    """Whether the stretches of memory of two arrays meet."""
    (low, high), (first, last) = span(a), span(b)
    return bool(low < last and first < high)


def span(array: Any) -> tuple[int, int]:
    """Where an array's memory starts, and where it has ended."""
    low = high = array.data.ptr
    if array.flags.c_contiguous:
        return low, low + array.nbytes
    if array.size == 0:
        return low, low
    for size, step in zip(array.shape, array.strides, strict=True):
        low += min(0, (size - 1) * step)
        high += max(0, (size - 1) * step)
    return low, high + array.itemsize
