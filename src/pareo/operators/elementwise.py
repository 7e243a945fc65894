"""Operators that work element by element, with NumPy's broadcasting."""

from typing import Any

import numpy as np

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.operators.attributes import Shape
from pareo.operators.core import Array, Number, operator
from pareo.operators.reduction import unbroadcast
from pareo.spec import Spec

BROADCASTING = ("add", "sub", "hadamard", "div")  # the operators that repeat smaller operands


def _broadcast(name: str, a: Spec, b: Spec) -> Spec:
    try:
        return a.like(np.broadcast_shapes(a.shape, b.shape))
    except ValueError:
        raise ShapeError(
            f"{name} expects shapes that broadcast together; got {a.shape} and {b.shape}"
        ) from None


def _same_shape(name: str, a: Spec, b: Spec) -> Spec:
    if a.shape != b.shape:
        raise ShapeError(f"{name} expects two arrays of one shape; got {a.shape} and {b.shape}")
    return a


@operator
def add(a: Number, b: Number) -> Spec:
    """Sum, element by element.

    >>> op.add(np.array([1.0, 2.0]), np.array([10.0, 20.0]))
    array([11., 22.])
    """
    return _broadcast("add", a, b)


@add.flops
def _(out: Spec, a: Spec, b: Spec) -> int:
    return out.size


@add.gradient
def _(g: Any, out: Any, a: Any, b: Any) -> Any:
    return unbroadcast(g, a), unbroadcast(g, b)


@operator
def sub(a: Number, b: Number) -> Spec:
    """Difference, element by element.

    >>> op.sub(np.array([1.0, 2.0]), 1.0)
    array([0., 1.])
    """
    return _broadcast("sub", a, b)


@sub.flops
def _(out: Spec, a: Spec, b: Spec) -> int:
    return out.size


@sub.gradient
def _(g: Any, out: Any, a: Any, b: Any) -> Any:
    return unbroadcast(g, a), op.scale(-1, unbroadcast(g, b))


@operator
def hadamard(a: Number, b: Number) -> Spec:
    """Product, element by element; also known as `mul`.

    >>> op.hadamard(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array([3., 8.])
    """
    return _broadcast("hadamard", a, b)


@hadamard.flops
def _(out: Spec, a: Spec, b: Spec) -> int:
    return out.size


@hadamard.gradient
def _(g: Any, out: Any, a: Any, b: Any) -> Any:
    return unbroadcast(op.hadamard(g, b), a), unbroadcast(op.hadamard(g, a), b)


@operator
def div(a: Number, b: Number) -> Spec:
    """Quotient, element by element; division by zero gives IEEE's infinity or NaN.

    >>> op.div(np.array([1.0, 6.0]), np.array([2.0, 3.0]))
    array([0.5, 2. ])
    """
    return _broadcast("div", a, b)


@div.flops
def _(out: Spec, a: Spec, b: Spec) -> int:
    return out.size


@div.gradient
def _(g: Any, out: Any, a: Any, b: Any) -> Any:
    share = op.div(g, b)
    return unbroadcast(share, a), op.scale(-1, unbroadcast(op.hadamard(share, out), b))


@operator
def scale(alpha: Number, a: Array) -> Spec:
    """A number times an array.

    >>> op.scale(0.5, np.array([2.0, 4.0]))
    array([1., 2.])
    """
    if alpha.shape != ():
        raise ShapeError(f"scale expects alpha to be one number; got an array of {alpha.shape}")
    return a


@scale.flops
def _(out: Spec, alpha: Spec, a: Spec) -> int:
    return out.size


@scale.gradient
def _(g: Any, out: Any, alpha: Any, a: Any) -> Any:
    return op.sum(op.hadamard(g, a)), op.scale(alpha, g)


@operator
def exp(a: Array) -> Spec:
    """e to the power of each element.

    >>> op.exp(np.array([0.0, 1.0]))
    array([1.        , 2.71828183])
    """
    return a


@exp.flops
def _(out: Spec, a: Spec) -> int:
    return out.size


@exp.gradient
def _(g: Any, out: Any, a: Any) -> Any:
    return op.hadamard(g, out)


@operator
def log(a: Array) -> Spec:
    """Natural logarithm of each element.

    >>> op.log(np.array([1.0, np.e]))
    array([0., 1.])
    """
    return a


@log.flops
def _(out: Spec, a: Spec) -> int:
    return out.size


@log.gradient
def _(g: Any, out: Any, a: Any) -> Any:
    return op.div(g, a)


@operator
def sigmoid(a: Array) -> Spec:
    """1 / (1 + exp(-a)), element by element.

    >>> op.sigmoid(np.array([-1000.0, 0.0]))
    array([0. , 0.5])
    """
    return a


@sigmoid.flops
def _(out: Spec, a: Spec) -> int:
    return 3 * out.size


@sigmoid.gradient
def _(g: Any, out: Any, a: Any) -> Any:
    return op.sigmoid_gradient(g, out)


@operator
def sigmoid_gradient(g: Array, y: Array) -> Spec:
    """g * y * (1 - y): the gradient of y = sigmoid(a).

    >>> op.sigmoid_gradient(np.array([4.0]), np.array([0.5]))
    array([1.])
    """
    return _same_shape("sigmoid_gradient", g, y)


@sigmoid_gradient.flops
def _(out: Spec, g: Spec, y: Spec) -> int:
    return 3 * out.size


@sigmoid_gradient.gradient
def _(u: Any, out: Any, g: Any, y: Any) -> Any:
    return op.sigmoid_gradient(u, y), op.hadamard(op.hadamard(u, g), op.sub(1, op.scale(2, y)))


@operator
def tanh(a: Array) -> Spec:
    """Hyperbolic tangent, element by element.

    >>> op.tanh(np.array([0.0, 1000.0]))
    array([0., 1.])
    """
    return a


@tanh.flops
def _(out: Spec, a: Spec) -> int:
    return out.size


@tanh.gradient
def _(g: Any, out: Any, a: Any) -> Any:
    return op.tanh_gradient(g, out)


@operator
def tanh_gradient(g: Array, y: Array) -> Spec:
    """g * (1 - y * y): the gradient of y = tanh(a).

    >>> op.tanh_gradient(np.array([4.0]), np.array([0.5]))
    array([3.])
    """
    return _same_shape("tanh_gradient", g, y)


@tanh_gradient.flops
def _(out: Spec, g: Spec, y: Spec) -> int:
    return 3 * out.size


@tanh_gradient.gradient
def _(u: Any, out: Any, g: Any, y: Any) -> Any:
    return op.tanh_gradient(u, y), op.scale(-2, op.hadamard(op.hadamard(u, g), y))


@operator
def relu(a: Array) -> Spec:
    """The larger of 0 and each element; NaN stays NaN.

    >>> op.relu(np.array([-1.0, 2.0]))
    array([0., 2.])
    """
    return a


@relu.flops
def _(out: Spec, a: Spec) -> int:
    return out.size


@relu.gradient
def _(g: Any, out: Any, a: Any) -> Any:
    return op.relu_gradient(g, out)


@operator
def relu_gradient(g: Array, y: Array) -> Spec:
    """0 where y <= 0, else g: the gradient of y = relu(a).

    >>> op.relu_gradient(np.array([3.0, 3.0]), np.array([0.0, 2.0]))
    array([0., 3.])
    """
    return _same_shape("relu_gradient", g, y)


@relu_gradient.flops
def _(out: Spec, g: Spec, y: Spec) -> int:
    return out.size


@relu_gradient.gradient
def _(u: Any, out: Any, g: Any, y: Any) -> Any:
    return op.relu_gradient(u, y), None


@operator
def broadcast(a: Array, shape: Shape) -> Spec:
    """The array repeated to a larger shape.

    >>> op.broadcast(np.array([1.0, 2.0]), (2, 2))
    array([[1., 2.],
           [1., 2.]])
    """
    if _broadcast("broadcast", a, a.like(shape)).shape != shape:
        raise ShapeError(
            f"broadcast expects a shape that {a.shape} can be repeated to; got {shape}"
        )
    return a.like(shape)


@broadcast.gradient
def _(g: Any, out: Any, a: Any, shape: Any) -> Any:
    return unbroadcast(g, a)
