"""Matrix products, biases, and operators that rearrange elements."""

from typing import Any

import numpy as np

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.operators.attributes import (
    Axis,
    Permutation,
    Real,
    Shape,
    ShapeOfSameSize,
    Size,
    Widths,
)
from pareo.operators.core import Array, Arrays, Labels, operator
from pareo.operators.reduction import unbroadcast
from pareo.spec import Spec


@operator
def dot(a: Array, b: Array) -> Spec:
    """Matrix product of the last two axes, for each index of the leading ones.

    >>> op.dot(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
    array([[11.]])
    """
    if a.ndim < 2 or b.ndim < 2:
        raise ShapeError(
            f"dot expects matrices, or stacks of matrices; got shapes {a.shape} and {b.shape}"
        )
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"dot expects as many columns in a as rows in b; got shapes {a.shape} and {b.shape}"
        )
    try:
        leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"dot expects leading axes that broadcast together; got shapes {a.shape} and {b.shape}"
        ) from None
    return a.like((*leading, a.shape[-2], b.shape[-1]))


@dot.flops
def _(out: Spec, a: Spec, b: Spec) -> int:
    return 2 * out.size * a.shape[-1]


@dot.gradient
def _(g: Any, out: Any, a: Any, b: Any) -> Any:
    return unbroadcast(op.dot(g, _transposed(b)), a), unbroadcast(op.dot(_transposed(a), g), b)


def _transposed(a: Any) -> Any:
    """Transpose the last two axes."""
    return op.transpose(a, (*range(a.ndim - 2), a.ndim - 1, a.ndim - 2))


@operator
def transpose(a: Array, axes: Permutation = None) -> Spec:
    """The array with its axes in another order; reversed where none is given.

    >>> op.transpose(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[1., 3.],
           [2., 4.]])
    """
    return a.like(tuple(a.shape[axis] for axis in axes))


@transpose.view
def _(a: Any, axes: Any) -> Any:
    return a.transpose(axes)


@transpose.gradient
def _(g: Any, out: Any, a: Any, axes: Any) -> Any:
    return op.transpose(g, tuple(axes.index(axis) for axis in range(len(axes))))


@operator
def reshape(a: Array, shape: ShapeOfSameSize) -> Spec:
    """The same elements in another shape; one size may be -1, to be inferred.

    >>> op.reshape(np.array([1.0, 2.0, 3.0, 4.0]), (2, -1))
    array([[1., 2.],
           [3., 4.]])
    """
    return a.like(shape)


@reshape.view
def _(a: Any, shape: Any) -> Any:
    return a.reshape(shape)


@reshape.gradient
def _(g: Any, out: Any, a: Any, shape: Any) -> Any:
    return op.reshape(g, a.shape)


@operator
def add_bias(a: Array, b: Array) -> Spec:
    """Add b along axis 1 of a, which is (N, features) or (N, C, H, W).

    >>> op.add_bias(np.zeros((2, 2)), np.array([1.0, 2.0]))
    array([[1., 2.],
           [1., 2.]])
    """
    if a.ndim not in (2, 4):
        raise ShapeError(
            f"add_bias expects a of shape (N, features) or (N, C, H, W); got {a.shape}"
        )
    if b.shape != (a.shape[1],):
        raise ShapeError(
            f"add_bias expects b of shape ({a.shape[1]},) for a of shape {a.shape}; got {b.shape}"
        )
    return a


@add_bias.flops
def _(out: Spec, a: Spec, b: Spec) -> int:
    return out.size


@add_bias.gradient
def _(g: Any, out: Any, a: Any, b: Any) -> Any:
    return g, op.sum(g, axis=(0, *range(2, a.ndim)))


@operator
def concat(arrays: Arrays, axis: Axis) -> Spec:
    """Concatenate arrays along one axis.

    >>> op.concat([np.ones(2), np.zeros(1)], axis=0)
    array([1., 1., 0.])
    """
    first = arrays[0]
    for other in arrays[1:]:
        if other.ndim != first.ndim or other.shape[:axis] + other.shape[axis + 1 :] != (
            first.shape[:axis] + first.shape[axis + 1 :]
        ):
            raise ShapeError(
                f"concat expects shapes that differ only along axis {axis}; "
                f"got {first.shape} and {other.shape}"
            )
    joined = sum(spec.shape[axis] for spec in arrays)
    return first.like((*first.shape[:axis], joined, *first.shape[axis + 1 :]))


@concat.gradient
def _(g: Any, out: Any, arrays: Any, axis: Any) -> Any:
    gradients, start = [], 0
    for array in arrays:
        stop = start + array.shape[axis]
        gradients.append(op.part(g, axis, (start, stop)))
        start = stop
    return gradients


def _within(name: str, between: tuple[int, ...], size: int, axis: int) -> tuple[int, int]:
    if len(between) != 2 or not between[0] <= between[1] <= size:
        raise ShapeError(
            f"{name} expects between to be a range within 0 to {size} on axis {axis}; got {between}"
        )
    return between[0], between[1]


@operator
def part(a: Array, axis: Axis, between: Shape) -> Spec:
    """The elements from `between[0]` up to, not including, `between[1]` along one axis.

    >>> op.part(np.array([1.0, 2.0, 3.0]), 0, (1, 3))
    array([2., 3.])
    """
    start, stop = _within("part", between, a.shape[axis], axis)
    return a.like((*a.shape[:axis], stop - start, *a.shape[axis + 1 :]))


@part.reads
def _(out: Spec, a: Spec, axis: int, between: Any) -> list[int]:
    return [out.size]


@part.view
def _(a: Any, axis: int, between: Any) -> Any:
    return a[(slice(None),) * axis + (slice(*between),)]


@part.gradient
def _(g: Any, out: Any, a: Any, axis: Any, between: Any) -> Any:
    return op.part_gradient(g, axis, between, a.shape[axis])


@operator
def part_gradient(g: Array, axis: Axis, between: Shape, size: Size) -> Spec:
    """Gradient of `part`: zeros, `size` of them along one axis, with g at `between`.

    >>> op.part_gradient(np.array([5.0]), 0, (1, 2), 3)
    array([0., 5., 0.])
    """
    start, stop = _within("part_gradient", between, size, axis)
    if g.shape[axis] != stop - start:
        raise ShapeError(
            f"part_gradient expects g with {stop - start} elements on axis {axis}; got {g.shape}"
        )
    return g.like((*g.shape[:axis], size, *g.shape[axis + 1 :]))


@part_gradient.gradient
def _(u: Any, out: Any, g: Any, axis: Any, between: Any, size: Any) -> Any:
    return op.part(u, axis, between)


@operator
def pad(a: Array, widths: Widths, value: Real = 0.0) -> Spec:
    """The array with more elements around it: (before, after) for each axis.

    >>> op.pad(np.array([1.0, 2.0]), [(1, 2)])
    array([0., 1., 2., 0., 0.])
    """
    return a.like(tuple(n + sum(w) for n, w in zip(a.shape, widths, strict=True)))


@pad.gradient
def _(g: Any, out: Any, a: Any, widths: Any, value: float) -> Any:
    for axis, ((before, _), size) in enumerate(zip(widths, a.shape, strict=True)):
        if g.shape[axis] != size:
            g = op.part(g, axis, (before, before + size))
    return g


@operator
def split(a: Array, sizes: Shape, axis: Axis = -1) -> tuple[Spec, ...]:
    """The array divided along one axis into parts of these sizes.

    >>> op.split(np.array([1.0, 2.0, 3.0]), (1, 2))
    (array([1.]), array([2., 3.]))
    """
    if not sizes or sum(sizes) != a.shape[axis]:
        raise ShapeError(f"split expects sizes with the sum {a.shape[axis]}; got {sizes}")
    return tuple(a.like((*a.shape[:axis], n, *a.shape[axis + 1 :])) for n in sizes)


@split.gradient
def _(g: Any, out: Any, a: Any, sizes: Any, axis: int) -> Any:
    several = out if isinstance(out, (list, tuple)) else [out]
    arrived = g if isinstance(g, (list, tuple)) else [g]
    parts = [
        np.zeros(part.shape, part.dtype) if one is None else one
        for one, part in zip(arrived, several, strict=True)
    ]
    return op.concat(parts, axis)


def check_index(name: str, index: Any, size: int) -> None:
    """Raise an error for places out of range; backends call this, as it reads the values."""
    if index.size and (index.min() < 0 or index.max() >= size):
        wrong = index.min() if index.min() < 0 else index.max()
        raise ShapeError(f"{name} expects index from 0 to {size - 1}; got {wrong}")


@operator
def take(a: Array, index: Labels) -> Spec:
    """The rows of a, its first axis, at the places in `index`, of any shape: an embedding.

    >>> op.take(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 1, 0]))
    array([[3., 4.],
           [3., 4.],
           [1., 2.]])
    """
    if a.ndim < 1 or a.shape[0] == 0:
        raise ShapeError(f"take expects an array with at least one row; got {a.shape}")
    return a.like((*index.shape, *a.shape[1:]))


@take.reads
def _(out: Spec, a: Spec, index: Spec) -> list[int]:
    return [min(out.size, a.size), index.size]


@take.gradient
def _(g: Any, out: Any, a: Any, index: Any) -> Any:
    return op.take_gradient(g, index, a.shape[0]), None


@operator
def take_gradient(g: Array, index: Labels, size: Size) -> Spec:
    """Gradient of `take`: zeros, `size` rows of them, with each row of g added at its place.

    >>> op.take_gradient(np.array([[1.0], [2.0], [4.0]]), np.array([1, 1, 0]), 3)
    array([[4.],
           [3.],
           [0.]])
    """
    if g.shape[: index.ndim] != index.shape:
        raise ShapeError(
            f"take_gradient expects g to begin with the axes of index {index.shape}; got {g.shape}"
        )
    return g.like((size, *g.shape[index.ndim :]))


@take_gradient.flops
def _(out: Spec, g: Spec, index: Spec, size: int) -> int:
    return g.size


@take_gradient.gradient
def _(u: Any, out: Any, g: Any, index: Any, size: int) -> Any:
    return op.take(u, index), None
