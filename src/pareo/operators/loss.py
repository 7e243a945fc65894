"""Softmax and the losses that training minimises."""

from typing import Any

import numpy as np

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.operators.attributes import Axis
from pareo.operators.core import Array, Labels, operator
from pareo.spec import Spec


def check_labels(labels: Any, classes: int) -> None:
    """Raise an error for labels out of range; backends call this, as it reads the values."""
    if labels.size and (labels.min() < 0 or labels.max() >= classes):
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise ShapeError(f"cross_entropy expects labels from 0 to {classes - 1}; got {wrong}")


@operator
def softmax(a: Array, axis: Axis = -1) -> Spec:
    """exp(a), scaled to a sum of 1 along an axis.

    >>> op.softmax(np.array([0.0, 0.0]))
    array([0.5, 0.5])
    """
    return _along("softmax", a, axis)


def _along(name: str, a: Spec, axis: int) -> Spec:
    if a.shape[axis] < 1:
        raise ShapeError(f"{name} expects at least one element along axis {axis}; got {a.shape}")
    return a


@softmax.flops
def _(out: Spec, a: Spec, axis: int) -> int:
    return 5 * a.size


@softmax.gradient
def _(g: Any, out: Any, a: Any, axis: int) -> Any:
    inner = op.sum(op.hadamard(g, out), axis=axis, keepdims=True)
    return op.hadamard(out, op.sub(g, inner))


@operator
def log_softmax(a: Array, axis: Axis = -1) -> Spec:
    """The logarithm of `softmax`, computed without rounding `softmax` itself.

    >>> op.log_softmax(np.array([0.0, 0.0]))
    array([-0.69314718, -0.69314718])
    """
    return _along("log_softmax", a, axis)


@log_softmax.flops
def _(out: Spec, a: Spec, axis: int) -> int:
    return 5 * a.size + a.size // a.shape[axis]


@log_softmax.gradient
def _(g: Any, out: Any, a: Any, axis: int) -> Any:
    return op.sub(g, op.hadamard(op.exp(out), op.sum(g, axis=axis, keepdims=True)))


def _rows(name: str, logits: Spec, labels: Spec) -> None:
    if logits.ndim < 2 or logits.size == 0:
        raise ShapeError(
            f"{name} expects logits of shape (N, classes), neither of them 0; got {logits.shape}"
        )
    if labels.shape != logits.shape[:-1]:
        raise ShapeError(f"{name} expects labels of shape {logits.shape[:-1]}; got {labels.shape}")


@operator
def cross_entropy(logits: Array, labels: Labels) -> Spec:
    """Mean over the batch of -log softmax(logits) at the label, for each index of leading axes.

    >>> op.cross_entropy(np.zeros((1, 2)), np.array([1]))
    array(0.69314718)
    """
    _rows("cross_entropy", logits, labels)
    return logits.like(logits.shape[:-2])


@cross_entropy.flops
def _(out: Spec, logits: Spec, labels: Spec) -> int:
    return 4 * logits.size + 3 * labels.size + out.size


@cross_entropy.gradient
def _(g: Any, out: Any, logits: Any, labels: Any) -> Any:
    return op.cross_entropy_gradient(g, logits, labels), None


@operator
def cross_entropy_gradient(g: Array, logits: Array, labels: Labels) -> Spec:
    """Gradient of `cross_entropy`: g * (softmax(logits) - 1 at the label) / N.

    >>> op.cross_entropy_gradient(np.array(1.0), np.zeros((1, 2)), np.array([1]))
    array([[ 0.5, -0.5]])
    """
    _rows("cross_entropy_gradient", logits, labels)
    if g.shape != logits.shape[:-2]:
        wanted = f"of shape {logits.shape[:-2]}" if logits.ndim > 2 else "to be one number"
        raise ShapeError(f"cross_entropy_gradient expects g {wanted}; got {g.shape}")
    return logits


@cross_entropy_gradient.flops
def _(out: Spec, g: Spec, logits: Spec, labels: Spec) -> int:
    return 6 * logits.size + labels.size + g.size


@cross_entropy_gradient.gradient
def _(u: Any, out: Any, g: Any, logits: Any, labels: Any) -> Any:
    chances = op.softmax(logits, axis=-1)
    inner = op.sum(op.hadamard(u, chances), axis=-1, keepdims=True)
    curved = op.hadamard(chances, op.sub(u, inner))
    unit = op.cross_entropy_gradient(np.ones(g.shape, g.dtype), logits, labels)
    share = op.reshape(op.scale(1 / logits.shape[-2], g), (*g.shape, 1, 1))
    return op.sum(op.hadamard(u, unit), axis=(-2, -1)), op.hadamard(share, curved), None


@operator
def squared_error(a: Array, b: Array) -> Spec:
    """Mean over all elements of (a - b) squared.

    >>> op.squared_error(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    array(2.)
    """
    if a.shape != b.shape or a.size == 0:
        raise ShapeError(
            f"squared_error expects two arrays of one shape, not empty; got {a.shape}, {b.shape}"
        )
    return a.like(())


@squared_error.flops
def _(out: Spec, a: Spec, b: Spec) -> int:
    return 3 * a.size + 1


@squared_error.gradient
def _(g: Any, out: Any, a: Any, b: Any) -> Any:
    size = int(np.prod(a.shape))
    error = op.scale(op.scale(2 / size, g), op.sub(a, b))
    return error, op.scale(-1, error)
