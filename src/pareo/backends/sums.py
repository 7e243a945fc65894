"""Long sums in NumPy: in stretches, which are then added in double precision.

NumPy adds pairwise along the innermost axis. Along any other it adds one element after another, so
that a float32 sum of ones ends at 2**24. Here no more than STRETCH elements are added that way.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from pareo.spec import Spec

STRETCH = 256  # float32 numbers added one after another: off by 256 roundings at the very most


class Cut(NamedTuple):
    """How the folded axes of a long sum are cut into stretches."""

    axis: int  # the one that is cut
    stretch: int  # and the length of a stretch of it
    whole: int  # stretches of that length; a shorter one may follow
    before: tuple[int, ...]  # folded axes up to this one
    behind: tuple[int, ...]  # and those behind it, which are part of every stretch
    parts: tuple[int, ...]  # the shape of the array with every stretch folded


@lru_cache(4096)
def _cut(shape: tuple[int, ...], axes: tuple[int, ...], contiguous: bool) -> Cut | None:
    """How to cut the sum over some axes of such an array; None where none is needed.

    A stretch has at most STRETCH elements, not counting what a contiguous array adds pairwise: its
    last axes, as far as all of them are folded.

    >>> _cut((1000, 3, 64), (0, 2), contiguous=False)
    Cut(axis=0, stretch=4, whole=250, before=(0,), behind=(2,), parts=(250, 3))
    >>> _cut((1000, 3, 64), (0, 2), contiguous=True).stretch
    256
    >>> _cut((9, 3, 64), (0, 2), contiguous=True)
    """
    first = len(shape)
    while contiguous and first and (first - 1 in axes or shape[first - 1] == 1):
        first -= 1
    group = 1
    for number, axis in reversed(list(enumerate(axes))):
        if axis >= first:
            continue
        if group * shape[axis] > STRETCH:
            stretch = max(1, STRETCH // group)
            rest = [shape[i] for i in range(axis + 1, len(shape)) if i not in axes]
            parts = (*shape[:axis], -(-shape[axis] // stretch), *rest)
            whole = shape[axis] // stretch
            return Cut(axis, stretch, whole, axes[: number + 1], axes[number + 1 :], parts)
        group *= shape[axis]
    return None


def room(a: Spec, axes: tuple[int, ...], contiguous: bool = False) -> list[Spec]:
    """Work arrays for `add_up`: the sums of stretches, and those of them, if there are several.

    `contiguous` promises that the array will be; otherwise the room is enough for any layout.
    """
    cut = _cut(a.shape, axes, contiguous)
    if cut is None or a.dtype == np.float64:
        return []
    kept = [size for axis, size in enumerate(a.shape) if axis not in axes]
    return [a.like((math.prod(cut.parts),)), Spec(kept, np.float64)]


def add_up(out: Any, a: Any, axes: tuple[int, ...], scratch: Any) -> None:
    """out = the sum of a over some axes; `scratch` is from `room`, out keeps these axes or not."""
    cut = _cut(a.shape, axes, a.flags.c_contiguous) if scratch else None
    if cut is None:
        np.add.reduce(a, axis=axes, keepdims=out.ndim == a.ndim, out=out)
        return
    axis, stretch, whole, before, behind, shape = cut
    parts, total = scratch[0][: math.prod(shape)].reshape(shape), scratch[1]
    lead = (slice(None),) * axis
    stretches = a[(*lead, slice(whole * stretch))].reshape(
        *a.shape[:axis], whole, stretch, *a.shape[axis + 1 :]
    )
    inside = (axis + 1, *(i + 1 for i in behind))
    np.add.reduce(stretches, axis=inside, out=parts[(*lead, slice(whole))])
    if whole < shape[axis]:
        rest = a[(*lead, slice(whole * stretch, None))]
        np.add.reduce(rest, axis=(axis, *behind), out=parts[(*lead, whole, ...)])
    np.add.reduce(parts, axis=before, dtype=np.float64, out=total)
    np.copyto(out.reshape(total.shape), total, casting="same_kind")


def gathered(sums: Any, parts: int) -> Any:
    """The sums of so many workers, added in a fixed order into the first."""
    for part in range(1, parts):
        np.add(sums[0], sums[part], out=sums[0])
    return sums[0]
