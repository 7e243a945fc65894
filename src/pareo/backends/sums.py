"""Long sums in NumPy: in chunks, whose sums are then added in double precision.

NumPy adds pairwise along the innermost axis. Along any other it adds one element after another, so
that a float32 sum of ones ends at 2**24. Here no more than CHUNK elements are added that way.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from pareo.spec import Spec

CHUNK = 256  # float32 numbers added one after another: an error of at most 256 roundings


class Chunks(NamedTuple):
    """How the reduced axes of a long sum are divided into chunks."""

    axis: int  # the one that is divided
    chunk: int  # the length of a chunk along it
    whole: int  # chunks of that length; a shorter one may follow
    before: tuple[int, ...]  # reduced axes up to this one
    after: tuple[int, ...]  # reduced axes after it, which are part of every chunk
    parts: tuple[int, ...]  # the shape of the array with every chunk reduced


@lru_cache(4096)
def _chunks(shape: tuple[int, ...], axes: tuple[int, ...], contiguous: bool) -> Chunks | None:
    """How to divide the sum over some axes of such an array; None where that is not needed.

    A chunk has at most CHUNK elements, not counting what a contiguous array adds pairwise: its last
    axes, as far as all of them are reduced.

    >>> _chunks((1000, 3, 64), (0, 2), contiguous=False)
    Chunks(axis=0, chunk=4, whole=250, before=(0,), after=(2,), parts=(250, 3))
    >>> _chunks((1000, 3, 64), (0, 2), contiguous=True).chunk
    256
    >>> _chunks((9, 3, 64), (0, 2), contiguous=True)
    """
    first = len(shape)
    while contiguous and first and (first - 1 in axes or shape[first - 1] == 1):
        first -= 1
    group = 1
    for number, axis in reversed(list(enumerate(axes))):
        if axis >= first:
            continue
        if group * shape[axis] > CHUNK:
            chunk = max(1, CHUNK // group)
            rest = [shape[i] for i in range(axis + 1, len(shape)) if i not in axes]
            parts = (*shape[:axis], -(-shape[axis] // chunk), *rest)
            whole = shape[axis] // chunk
            return Chunks(axis, chunk, whole, axes[: number + 1], axes[number + 1 :], parts)
        group *= shape[axis]
    return None


def room(a: Spec, axes: tuple[int, ...], contiguous: bool = False) -> list[Spec]:
    """Work arrays for `add_up`: the sums of chunks, and the sums of those; none if not needed.

    `contiguous` promises that the array will be; otherwise they are enough for any layout.
    """
    chunks = _chunks(a.shape, axes, contiguous)
    if chunks is None or a.dtype == np.float64:
        return []
    kept = [size for axis, size in enumerate(a.shape) if axis not in axes]
    return [a.like((math.prod(chunks.parts),)), Spec(kept, np.float64)]


def add_up(out: Any, a: Any, axes: tuple[int, ...], scratch: Any) -> None:
    """out = the sum of a over some axes, which out may keep; `scratch` is as `room` specifies."""
    chunks = _chunks(a.shape, axes, a.flags.c_contiguous) if scratch else None
    if chunks is None:
        np.add.reduce(a, axis=axes, keepdims=out.ndim == a.ndim, out=out)
        return
    axis, chunk, whole, before, after, shape = chunks
    parts, total = scratch[0][: math.prod(shape)].reshape(shape), scratch[1]
    lead = (slice(None),) * axis
    chunked = a[(*lead, slice(whole * chunk))].reshape(
        *a.shape[:axis], whole, chunk, *a.shape[axis + 1 :]
    )
    inside = (axis + 1, *(i + 1 for i in after))
    np.add.reduce(chunked, axis=inside, out=parts[(*lead, slice(whole))])
    if whole < shape[axis]:
        rest = a[(*lead, slice(whole * chunk, None))]
        np.add.reduce(rest, axis=(axis, *after), out=parts[(*lead, whole, ...)])
    np.add.reduce(parts, axis=before, dtype=np.float64, out=total)
    np.copyto(out.reshape(total.shape), total, casting="same_kind")
