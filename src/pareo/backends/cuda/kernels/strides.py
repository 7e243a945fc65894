"""Strided arrays in as few axes as possible, as kernels iterate over them."""

from collections.abc import Sequence

from pareo.array import Array
from pareo.backends.cuda.runtime.launch import MOST_AXES
from pareo.errors import ShapeError


def element_strides(array: Array, shape: Sequence[int]) -> list[int]:
    """Strides in elements along each axis of `shape`; 0 where the array is broadcast."""
    added = len(shape) - array.ndim
    own = [
        0 if size == 1 else step // array.itemsize
        for size, step in zip(array.shape, array.strides, strict=True)
    ]
    return [0] * added + own


def collapsed(
    sizes: Sequence[int], every: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """The same iteration with neighbouring axes merged where all arrays allow it.

    `every` holds the strides of each array.

    >>> collapsed([2, 3, 4], [[12, 4, 1], [0, 4, 1]])
    ([2, 12], [[12, 1], [0, 1]])
    """
    found: list[int] = []
    walks: list[list[int]] = [[] for _ in every]
    for axis, size in enumerate(sizes):
        if size == 1:
            continue
        here = [walk[axis] for walk in every]
        if found and all(w[-1] == step * size for w, step in zip(walks, here, strict=True)):
            found[-1] *= size
            for walk, step in zip(walks, here, strict=True):
                walk[-1] = step
        else:
            found.append(size)
            for walk, step in zip(walks, here, strict=True):
                walk.append(step)
    return found or [1], walks if found else [[0] for _ in every]


def walk(sizes: Sequence[int], every: Sequence[Sequence[int]]) -> list[int]:
    """The fields of a `Walk` of common.cuh."""
    sizes, every = collapsed(sizes, every)
    if len(sizes) > MOST_AXES:
        raise ShapeError(
            f"the device 'cuda' supports strided arrays of at most {MOST_AXES} axes; got {sizes}"
        )
    rest = [0] * (MOST_AXES - len(sizes))
    numbers = [len(sizes), *sizes, *rest]
    for own in every:
        numbers += [*own, *rest]
    return numbers
