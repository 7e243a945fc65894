"""The kernel table of `vectorized`, and functions that several kernels use."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pareo.backends.base import Backend
from pareo.spec import Spec

Array = NDArray[Any]
BLOCK = 1 << 16  # elements: a few such blocks of float32 fit into a core's second-level cache

backend = Backend("vectorized")


def blocks(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Contiguous arrays of one size, divided into the same blocks of at most BLOCK elements."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, BLOCK):
        yield tuple(array[start : start + BLOCK] for array in flat)


def one_block(spec: Spec) -> Spec:
    """A work array that holds one block of an array."""
    return spec.like((min(spec.size, BLOCK),))


def images_at_once(x: Spec) -> int:
    """How many images (N, C, H, W) to take at a time: four blocks' worth, at least one.

    Their slices are strided and cost more to set up, so they are taken larger than a block.
    """
    image = x.size // max(x.shape[0], 1)
    return max(1, min(x.shape[0], 4 * BLOCK // max(image, 1)))


def bits(spec: Spec) -> Spec:
    """A work array of unsigned integers as wide as the elements of `spec`."""
    return Spec(spec.shape, f"u{spec.dtype.itemsize}")


def flags(spec: Spec) -> Spec:
    """A work array of one boolean for each element of `spec`."""
    return Spec(spec.shape, bool)


def count_up(out: Array, step: int) -> None:
    """0, step, 2 * step and so on: like `arange`, into an existing array."""
    np.add.accumulate(np.broadcast_to(out.dtype.type(step), out.shape), out=out)
    np.subtract(out, step, out=out)


def select(out: Array, values: Array, chosen: Array, work: Array) -> None:
    """`values` where `chosen`, else 0; `work` is an array of `bits`.

    The bits are multiplied, as integers: 0.0 times infinity is NaN, and NumPy's own `where=` is
    five times slower on flags that change often.
    """
    np.copyto(work, chosen)
    np.multiply(values.view(work.dtype), work, out=out.view(work.dtype))
