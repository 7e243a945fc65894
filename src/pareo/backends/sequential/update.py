"""The update of a training step."""

from typing import Any

import numpy as np

from pareo.backends.sequential.numbers import at, backend, divide, sign, sqrt


@backend.kernel(in_place=(0, 2))
def sgd(
    out: Any,
    parameter: Any,
    gradient: Any,
    velocity: Any,
    rate: Any,
    momentum: Any,
    decay: Any,
    *,
    nesterov: bool,
) -> None:
    new_parameter, new_velocity = out
    for i in np.ndindex(parameter.shape):
        old = float(parameter[i])
        slope = float(gradient[i]) + at(decay, i) * old
        speed = at(momentum, i) * float(velocity[i]) + slope
        step = slope + at(momentum, i) * speed if nesterov else speed
        new_velocity[i] = speed
        new_parameter[i] = old - at(rate, i) * step


@backend.kernel(in_place=(0, 2, 3))
def adam(
    out: Any,
    parameter: Any,
    gradient: Any,
    first: Any,
    second: Any,
    rate: Any,
    first_correction: Any,
    second_correction: Any,
    beta1: Any,
    beta2: Any,
    epsilon: Any,
    decay: Any,
    *,
    decoupled: bool,
) -> None:
    new_parameter, new_first, new_second = out
    for i in np.ndindex(parameter.shape):
        old, slope = float(parameter[i]), float(gradient[i])
        if decoupled:
            old = old * (1 - at(rate, i) * at(decay, i))
        else:
            slope = slope + at(decay, i) * old
        moved = at(beta1, i) * float(first[i]) + (1 - at(beta1, i)) * slope
        spread = at(beta2, i) * float(second[i]) + (1 - at(beta2, i)) * (slope * slope)
        root = divide(sqrt(spread), sqrt(at(second_correction, i))) + at(epsilon, i)
        step = divide(at(rate, i), at(first_correction, i)) * moved
        new_first[i], new_second[i] = moved, spread
        new_parameter[i] = old - divide(step, root)


@backend.kernel(in_place=(0, 2))
def lion(
    out: Any,
    parameter: Any,
    gradient: Any,
    velocity: Any,
    rate: Any,
    beta1: Any,
    beta2: Any,
    decay: Any,
) -> None:
    new_parameter, new_velocity = out
    for i in np.ndindex(parameter.shape):
        speed, slope = float(velocity[i]), float(gradient[i])
        kept = float(parameter[i]) * (1 - at(rate, i) * at(decay, i))
        way = sign(at(beta1, i) * speed + (1 - at(beta1, i)) * slope)
        new_velocity[i] = at(beta2, i) * speed + (1 - at(beta2, i)) * slope
        new_parameter[i] = kept - at(rate, i) * way
