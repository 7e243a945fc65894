"""The update of a training step: stochastic gradient descent, Adam, Lion."""

from typing import Any

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.operators.attributes import Flag
from pareo.operators.core import Array, Number, operator
from pareo.spec import Spec


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    padded = (1,) * (len(target) - len(shape)) + shape
    return len(padded) == len(target) and all(
        size in (1, goal) for size, goal in zip(padded, target, strict=True)
    )


def _same_shapes(name: str, parameter: Spec, **arrays: Spec) -> None:
    if any(array.shape != parameter.shape for array in arrays.values()):
        *most, last = arrays
        raise ShapeError(
            f"{name} expects {', '.join(most)} and {last} of shape {parameter.shape}; "
            f"got {' and '.join(str(array.shape) for array in arrays.values())}"
        )


def _numbers(name: str, parameter: Spec, **numbers: Spec) -> None:
    for what, number in numbers.items():
        if not _broadcasts(number.shape, parameter.shape):
            raise ShapeError(
                f"{name} expects {what} to be one number or to broadcast to {parameter.shape}; "
                f"got {number.shape}"
            )


@operator
def sgd(
    parameter: Array,
    gradient: Array,
    velocity: Array,
    rate: Number,
    momentum: Number = 0.0,
    decay: Number = 0.0,
    nesterov: Flag = False,
) -> tuple[Spec, Spec]:
    """One step of gradient descent; returns the new parameter and the new velocity.

    With d = gradient + decay * parameter: velocity = momentum * velocity + d, then
    parameter = parameter - rate * velocity; with `nesterov`, rate * (d + momentum * velocity). The
    three numbers may be arrays that broadcast.

    >>> op.sgd(np.array([1.0]), np.array([0.5]), np.array([0.0]), rate=0.1)
    (array([0.95]), array([0.5]))
    """
    _same_shapes("sgd", parameter, gradient=gradient, velocity=velocity)
    _numbers("sgd", parameter, rate=rate, momentum=momentum, decay=decay)
    return parameter, parameter


@sgd.flops
def _(out: Any, parameter: Spec, *_: Spec, nesterov: bool) -> int:
    return (8 if nesterov else 6) * parameter.size


@operator
def adam(
    parameter: Array,
    gradient: Array,
    first: Array,
    second: Array,
    rate: Number,
    first_correction: Number = 1.0,
    second_correction: Number = 1.0,
    beta1: Number = 0.9,
    beta2: Number = 0.999,
    epsilon: Number = 1e-8,
    decay: Number = 0.0,
    decoupled: Flag = False,
) -> tuple[Spec, Spec, Spec]:
    """One step of Adam; returns the new parameter and the two new moments.

    With d = gradient + decay * parameter: first = beta1 * first + (1 - beta1) * d,
    second = beta2 * second + (1 - beta2) * d * d, then
    parameter -= rate / c1 * first / (sqrt(second) / sqrt(c2) + epsilon). The corrections of step t,
    counted from 1, are c1 = 1 - beta1 ** t and c2 = 1 - beta2 ** t. With `decoupled` decay (AdamW)
    d is the gradient alone, and the parameter is multiplied by 1 - rate * decay first.

    >>> zero = np.zeros(1)
    >>> op.adam(zero, np.array([2.0]), zero, zero, 0.5, 0.1, 0.001, epsilon=0.0)[0]
    array([-0.5])
    """
    _same_shapes("adam", parameter, gradient=gradient, first=first, second=second)
    _numbers(
        "adam", parameter, rate=rate, first_correction=first_correction,
        second_correction=second_correction, beta1=beta1, beta2=beta2, epsilon=epsilon, decay=decay,
    )  # fmt: skip
    return parameter, parameter, parameter


@adam.flops
def _(out: Any, parameter: Spec, *_: Spec, decoupled: bool) -> int:
    return (20 if decoupled else 19) * parameter.size


def adamw(*operands: Any, **more: Any) -> Any:
    """`adam` with decoupled weight decay.

    >>> one, zero = np.ones(1), np.zeros(1)
    >>> op.adamw(one, zero, zero, zero, rate=0.1, decay=0.5)[0]
    array([0.95])
    """
    return op.adam(*operands, **more, decoupled=True)


@operator
def lion(
    parameter: Array,
    gradient: Array,
    velocity: Array,
    rate: Number,
    beta1: Number = 0.9,
    beta2: Number = 0.99,
    decay: Number = 0.0,
) -> tuple[Spec, Spec]:
    """One step of Lion; returns the new parameter and the new velocity.

    parameter = parameter * (1 - rate * decay)
    - rate * sign(beta1 * velocity + (1 - beta1) * gradient), then
    velocity = beta2 * velocity + (1 - beta2) * gradient. The sign of NaN is NaN.

    >>> op.lion(np.zeros(2), np.array([3.0, -2.0]), np.zeros(2), rate=0.1)[0]
    array([-0.1,  0.1])
    """
    _same_shapes("lion", parameter, gradient=gradient, velocity=velocity)
    _numbers("lion", parameter, rate=rate, beta1=beta1, beta2=beta2, decay=decay)
    return parameter, parameter


@lion.flops
def _(out: Any, parameter: Spec, *_: Spec) -> int:
    return 14 * parameter.size
