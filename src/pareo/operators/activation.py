"""The activations of newer networks; sigmoid, tanh and relu are in `elementwise`.

Each gradient is computed from the operand `a`, not from the result.
"""

import math
from collections.abc import Callable
from typing import Any

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.operators.attributes import Flag, Real
from pareo.operators.core import Array, Operator, operator
from pareo.spec import Spec

# gelu is a * (1 + erf(a * HALF_ROOT)) / 2, and its slope that plus a * DENSITY * exp(-a * a / 2);
# approximately it is a / (1 + exp(-u)) with u = TWICE * (a + CUBE * a ** 3).
HALF_ROOT = math.sqrt(0.5)
DENSITY = 1 / math.sqrt(2 * math.pi)
TWICE = 2 * math.sqrt(2 / math.pi)
CUBE = 0.044715


def _same_shape(name: str, g: Spec, a: Spec) -> Spec:
    if g.shape != a.shape:
        raise ShapeError(f"{name} expects two arrays of one shape; got {g.shape} and {a.shape}")
    return a


def _flops(operator: Operator, each: int) -> None:
    """Declare that an operator takes `each` FLOPs for one element."""

    @operator.flops
    def _(out: Spec, *_: Spec, **__: Any) -> int:
        return each * out.size


def _gradient(operator: Operator, gradient: Callable[..., Any]) -> None:
    """Declare that the gradient of `operator(a)` is `gradient(g, a)`, with the same attributes."""

    @operator.gradient
    def _(g: Any, out: Any, a: Any, **how: Any) -> Any:
        return gradient(g, a, **how)


@operator
def gelu(a: Array, approximate: Flag = False) -> Spec:
    """a * Phi(a), the normal distribution function; or its approximation by tanh.

    >>> op.gelu(np.array([-1000.0, 0.0, 1000.0]))
    array([  -0.,    0., 1000.])
    """
    return a


@operator
def gelu_gradient(g: Array, a: Array, approximate: Flag = False) -> Spec:
    """Gradient of `gelu`.

    >>> op.gelu_gradient(np.array([4.0]), np.array([0.0]))
    array([2.])
    """
    return _same_shape("gelu_gradient", g, a)


@operator
def silu(a: Array) -> Spec:
    """a * sigmoid(a), also known as swish.

    >>> op.silu(np.array([-1000.0, 0.0, 1000.0]))
    array([  -0.,    0., 1000.])
    """
    return a


@operator
def silu_gradient(g: Array, a: Array) -> Spec:
    """Gradient of `silu`.

    >>> op.silu_gradient(np.array([4.0]), np.array([0.0]))
    array([2.])
    """
    return _same_shape("silu_gradient", g, a)


@operator
def hard_sigmoid(a: Array) -> Spec:
    """(a + 3) / 6, clipped to 0 and 1.

    >>> op.hard_sigmoid(np.array([-4.0, 0.0, 4.0]))
    array([0. , 0.5, 1. ])
    """
    return a


@operator
def hard_sigmoid_gradient(g: Array, a: Array) -> Spec:
    """g / 6 where -3 < a < 3, else 0: the gradient of `hard_sigmoid`.

    >>> op.hard_sigmoid_gradient(np.array([6.0, 6.0]), np.array([0.0, 4.0]))
    array([1., 0.])
    """
    return _same_shape("hard_sigmoid_gradient", g, a)


@operator
def hard_swish(a: Array) -> Spec:
    """a * hard_sigmoid(a).

    >>> op.hard_swish(np.array([-4.0, 3.0]))
    array([-0.,  3.])
    """
    return a


@operator
def hard_swish_gradient(g: Array, a: Array) -> Spec:
    """0 where a <= -3, g where a >= 3, g * (a / 3 + 1 / 2) between.

    >>> op.hard_swish_gradient(np.array([4.0, 4.0]), np.array([0.0, 5.0]))
    array([2., 4.])
    """
    return _same_shape("hard_swish_gradient", g, a)


@operator
def leaky_relu(a: Array, slope: Real = 0.01) -> Spec:
    """a where it is above 0, else slope * a.

    >>> op.leaky_relu(np.array([-1.0, 2.0]), slope=0.1)
    array([-0.1,  2. ])
    """
    return a


@operator
def leaky_relu_gradient(g: Array, a: Array, slope: Real = 0.01) -> Spec:
    """g where a > 0, else slope * g: the gradient of `leaky_relu`.

    >>> op.leaky_relu_gradient(np.array([1.0, 1.0]), np.array([-1.0, 2.0]), slope=0.1)
    array([0.1, 1. ])
    """
    return _same_shape("leaky_relu_gradient", g, a)


def _limits(name: str, low: float, high: float) -> None:
    if low > high:
        raise ShapeError(f"{name} expects low to be at most high; got {low:g} and {high:g}")


@operator
def clip(a: Array, low: Real, high: Real) -> Spec:
    """a, but at least low and at most high; NaN stays NaN. ReLU6 is clip(a, 0, 6).

    >>> op.clip(np.array([-1.0, 2.0, 9.0]), 0, 6)
    array([0., 2., 6.])
    """
    _limits("clip", low, high)
    return a


@operator
def clip_gradient(g: Array, a: Array, low: Real, high: Real) -> Spec:
    """g where low < a < high, else 0: the gradient of `clip`.

    >>> op.clip_gradient(np.array([5.0, 5.0]), np.array([-1.0, 2.0]), 0, 6)
    array([0., 5.])
    """
    _limits("clip_gradient", low, high)
    return _same_shape("clip_gradient", g, a)


for _operator, _each in (
    (silu, 3), (silu_gradient, 8), (hard_sigmoid, 4), (hard_sigmoid_gradient, 3),
    (hard_swish, 5), (hard_swish_gradient, 5), (leaky_relu, 2), (leaky_relu_gradient, 2),
    (clip, 2), (clip_gradient, 2),
):  # fmt: skip
    _flops(_operator, _each)
for _operator, _its_gradient in (
    (gelu, gelu_gradient), (silu, silu_gradient), (hard_sigmoid, hard_sigmoid_gradient),
    (hard_swish, hard_swish_gradient), (leaky_relu, leaky_relu_gradient), (clip, clip_gradient),
):  # fmt: skip
    _gradient(_operator, _its_gradient)


@gelu.flops
def _(out: Spec, a: Spec, approximate: bool) -> int:
    return (7 if approximate else 4) * out.size


@gelu_gradient.flops
def _(out: Spec, g: Spec, a: Spec, approximate: bool) -> int:
    return (15 if approximate else 10) * out.size


@clip_gradient.gradient
def _(u: Any, out: Any, g: Any, a: Any, low: float, high: float) -> Any:
    return op.clip_gradient(u, a, low, high), None


@leaky_relu_gradient.gradient
def _(u: Any, out: Any, g: Any, a: Any, slope: float) -> Any:
    return op.leaky_relu_gradient(u, a, slope), None


@hard_sigmoid_gradient.gradient
def _(u: Any, out: Any, g: Any, a: Any) -> Any:
    return op.hard_sigmoid_gradient(u, a), None
