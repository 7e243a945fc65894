"""The update of a training step: stochastic gradient descent."""

from typing import Any

from pareo.errors import ShapeError
from pareo.operators.core import Array, Number, operator
from pareo.spec import Spec


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    padded = (1,) * (len(target) - len(shape)) + shape
    return len(padded) == len(target) and all(
        size in (1, goal) for size, goal in zip(padded, target, strict=True)
    )


@operator
def sgd(
    parameter: Array,
    gradient: Array,
    velocity: Array,
    rate: Number,
    momentum: Number = 0.0,
    decay: Number = 0.0,
) -> tuple[Spec, Spec]:
    """One step of gradient descent; returns the new parameter and the new velocity.

    velocity = momentum * velocity + gradient + decay * parameter, then
    parameter = parameter - rate * velocity. The three numbers may be arrays that broadcast.

    >>> op.sgd(np.array([1.0]), np.array([0.5]), np.array([0.0]), rate=0.1)
    (array([0.95]), array([0.5]))
    """
    if gradient.shape != parameter.shape or velocity.shape != parameter.shape:
        raise ShapeError(
            f"sgd expects gradient and velocity of shape {parameter.shape}; "
            f"got {gradient.shape} and {velocity.shape}"
        )
    for name, number in (("rate", rate), ("momentum", momentum), ("decay", decay)):
        if not _broadcasts(number.shape, parameter.shape):
            raise ShapeError(
                f"sgd expects {name} to be one number or to broadcast to {parameter.shape}; "
                f"got {number.shape}"
            )
    return parameter, parameter


@sgd.flops
def _(out: Any, parameter: Spec, *_: Spec) -> int:
    return 6 * parameter.size
