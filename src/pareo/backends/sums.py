"""Long sums in NumPy: in stretches, which are then added in double precision.

NumPy adds pairwise along the innermost axis. Along any other it adds one element after another, so
that a float32 sum of ones ends at 2**24. Here no more than STRETCH elements are added that way.
"""

from typing import Any

import numpy as np

from pareo.spec import Spec

STRETCH = 256  # float32 numbers added one after another: off by 256 roundings at the very most


def _innermost(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """The first of the last axes that are all folded: a contiguous array is added pairwise there.

    >>> _innermost((2, 3, 4, 5), (0, 2, 3))
    2
    """
    first = len(shape)
    while first and (first - 1 in axes or shape[first - 1] == 1):
        first -= 1
    return first


def _cut(shape: tuple[int, ...], axes: tuple[int, ...], first: int) -> tuple[int, int] | None:
    """The axis to cut, and the length of its stretches; None where the sum is short.

    Axes from `first` on do not count. With the folded axes behind it, a stretch has no more than
    STRETCH elements.

    >>> _cut((1000, 3, 64), (0, 2), 3), _cut((1000, 3, 64), (0, 2), 2), _cut((9, 3, 64), (0, 2), 2)
    ((0, 4), (0, 256), None)
    """
    group = 1
    for axis in reversed(axes):
        if axis >= first:
            continue
        if group * shape[axis] > STRETCH:
            return axis, max(1, STRETCH // group)
        group *= shape[axis]
    return None


def room(a: Spec, axes: tuple[int, ...], contiguous: bool = False) -> list[Spec]:
    """Work arrays for `add_up`: the sums of stretches, and those of them, if there are several.

    `contiguous` promises that the array will be; otherwise the room is enough for any layout.
    """
    found = _cut(a.shape, axes, _innermost(a.shape, axes) if contiguous else a.ndim)
    if found is None or a.dtype == np.float64:
        return []
    shape = _parts(a.shape, axes, *found)
    kept = [size for axis, size in enumerate(a.shape) if axis not in axes]
    return [a.like((int(np.prod(shape)),)), Spec(kept, np.float64)]


def _parts(shape: tuple[int, ...], axes: tuple[int, ...], axis: int, stretch: int) -> list[int]:
    """The shape of an array whose `axis` is cut, with every stretch folded."""
    before = list(shape[:axis])
    behind = [shape[i] for i in range(axis + 1, len(shape)) if i not in axes]
    return [*before, -(-shape[axis] // stretch), *behind]


def add_up(out: Any, a: Any, axes: tuple[int, ...], scratch: Any) -> None:
    """out = the sum of a over some axes; `scratch` is from `room`, out keeps these axes or not."""
    found = None
    if scratch:
        first = _innermost(a.shape, axes) if a.flags.c_contiguous else a.ndim
        found = _cut(a.shape, axes, first)
    if found is None:
        np.add.reduce(a, axis=axes, keepdims=out.ndim == a.ndim, out=out)
        return
    axis, stretch = found
    shape = _parts(a.shape, axes, axis, stretch)
    parts, total = scratch[0][: int(np.prod(shape))].reshape(shape), scratch[1]
    lead = (slice(None),) * axis
    whole = a.shape[axis] // stretch
    behind = tuple(i for i in axes if i > axis)
    stretches = a[(*lead, slice(whole * stretch))].reshape(
        *a.shape[:axis], whole, stretch, *a.shape[axis + 1 :]
    )
    inside = (axis + 1, *(i + 1 for i in behind))
    np.add.reduce(stretches, axis=inside, out=parts[(*lead, slice(whole))])
    if whole < shape[axis]:
        rest = a[(*lead, slice(whole * stretch, None))]
        np.add.reduce(rest, axis=(axis, *behind), out=parts[(*lead, whole, ...)])
    np.add.reduce(parts, axis=axes[: len(axes) - len(behind)], dtype=np.float64, out=total)
    np.copyto(out.reshape(total.shape), total, casting="same_kind")


def gathered(sums: Any, parts: int) -> Any:
    """The sums of so many workers, added in a fixed order into the first."""
    for part in range(1, parts):
        np.add(sums[0], sums[part], out=sums[0])
    return sums[0]
