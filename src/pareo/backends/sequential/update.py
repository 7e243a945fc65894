"""The update of a training step."""

from typing import Any

import numpy as np

from pareo.backends.sequential.numbers import at, backend


@backend.kernel(in_place=(0, 2))
def sgd(
    out: Any, parameter: Any, gradient: Any, velocity: Any, rate: Any, momentum: Any, decay: Any
) -> None:
    new_parameter, new_velocity = out
    for i in np.ndindex(parameter.shape):
        old = float(parameter[i])
        speed = at(momentum, i) * float(velocity[i]) + float(gradient[i]) + at(decay, i) * old
        new_velocity[i] = speed
        new_parameter[i] = old - at(rate, i) * speed
