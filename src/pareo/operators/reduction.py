"""Operators that reduce axes."""

from typing import Any

import numpy as np

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.operators.attributes import Axes, AxisOrNone, Flag
from pareo.operators.core import Array, Arrays, operator
from pareo.spec import Spec


def reduced_shape(a: Spec, axes: tuple[int, ...], keepdims: bool = False) -> tuple[int, ...]:
    """The shape that is left when `axes` are reduced."""
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(a.shape))
    return tuple(size for axis, size in enumerate(a.shape) if axis not in axes)


def _count(name: str, a: Spec, axes: tuple[int, ...]) -> int:
    """How many elements each result is computed from: at least one, or there is no result."""
    number = int(np.prod([a.shape[axis] for axis in axes], dtype=np.int64))
    if number == 0:
        raise ShapeError(f"{name} expects at least one element to reduce; got shape {a.shape}")
    return number


def unbroadcast(gradient: Any, operand: Any) -> Any:
    """The gradient of a broadcast operand: summed over the axes along which it was repeated."""
    if gradient.shape == operand.shape:
        return gradient
    added = gradient.ndim - operand.ndim
    repeated = [
        axis
        for axis in range(gradient.ndim)
        if axis < added or (operand.shape[axis - added] == 1 and gradient.shape[axis] != 1)
    ]
    return op.reshape(op.sum(gradient, axis=repeated), operand.shape)


def _repeated(value: Any, a: Any, axes: tuple[int, ...]) -> Any:
    """A reduced value, repeated to the shape of the operand."""
    return op.broadcast(op.reshape(value, reduced_shape(a, axes, keepdims=True)), a.shape)


@operator
def sum_(a: Array, axis: Axes = None, keepdims: Flag = False) -> Spec:
    """Sum over some axes, or over all.

    >>> op.sum(np.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([4., 6.])
    """
    return a.like(reduced_shape(a, axis, keepdims))


@sum_.flops
def _(out: Spec, a: Spec, axis: Any, keepdims: bool) -> int:
    return a.size


@sum_.gradient
def _(g: Any, out: Any, a: Any, axis: Any, keepdims: bool) -> Any:
    return _repeated(g, a, axis)


@operator
def mean(a: Array, axis: Axes = None, keepdims: Flag = False) -> Spec:
    """Mean over some axes, or over all.

    >>> op.mean(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array(2.5)
    """
    _count("mean", a, axis)
    return a.like(reduced_shape(a, axis, keepdims))


@mean.flops
def _(out: Spec, a: Spec, axis: Any, keepdims: bool) -> int:
    return a.size + out.size


@mean.gradient
def _(g: Any, out: Any, a: Any, axis: Any, keepdims: bool) -> Any:
    return _repeated(op.scale(1 / _count("mean", a, axis), g), a, axis)


@operator
def max_(a: Array, axis: Axes = None, keepdims: Flag = False) -> Spec:
    """The largest element over some axes, or over all; NaN where there is a NaN.

    The gradient is divided equally among the largest elements.

    >>> op.max(np.array([[1.0, 2.0], [3.0, 0.0]]), axis=1)
    array([2., 3.])
    """
    _count("max", a, axis)
    return a.like(reduced_shape(a, axis, keepdims))


@max_.flops
def _(out: Spec, a: Spec, axis: Any, keepdims: bool) -> int:
    return a.size


@max_.gradient
def _(g: Any, out: Any, a: Any, axis: Any, keepdims: bool) -> Any:
    kept = reduced_shape(a, axis, keepdims=True)
    return op.max_gradient(op.reshape(g, kept), a, op.reshape(out, kept), axis)


@operator
def max_gradient(g: Array, a: Array, y: Array, axis: Axes) -> Spec:
    """Gradient of y = max(a, axis, keepdims=True): g, divided among the elements equal to y.

    >>> op.max_gradient(np.array([6.0]), np.array([1.0, 3.0, 3.0]), np.array([3.0]), 0)
    array([0., 3., 3.])
    """
    kept = reduced_shape(a, axis, keepdims=True)
    if g.shape != kept or y.shape != kept:
        raise ShapeError(f"max_gradient expects g and y of shape {kept}; got {g.shape}, {y.shape}")
    return a


@max_gradient.flops
def _(out: Spec, g: Spec, a: Spec, y: Spec, axis: Any) -> int:
    return 2 * a.size + y.size


@operator
def argmax(a: Array, axis: AxisOrNone = None) -> Spec:
    """The index (int64) of the first largest element along an axis, or in the flat array.

    >>> op.argmax(np.array([[1.0, 9.0], [3.0, 0.0]]), axis=1)
    array([1, 0])
    """
    axes = tuple(range(a.ndim)) if axis is None else (axis,)
    _count("argmax", a, axes)
    return Spec(reduced_shape(a, axes), np.int64)


@argmax.flops
def _(out: Spec, a: Spec, axis: Any) -> int:
    return a.size


@operator
def norm(arrays: Arrays) -> Spec:
    """The square root of the sum of the squares of all elements of all arrays.

    >>> op.norm([np.array([3.0]), np.array([[4.0]])])
    array(5.)
    """
    return arrays[0].like(())


@norm.flops
def _(out: Spec, arrays: tuple[Spec, ...]) -> int:
    return 2 * sum(array.size for array in arrays) + 1


@norm.gradient
def _(g: Any, out: Any, arrays: Any) -> Any:
    share = op.div(g, out)
    return [op.scale(share, array) for array in arrays]
