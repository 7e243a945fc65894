"""The step that training takes."""

from typing import Any

from pareo.backends.cuda import launch, layout
from pareo.backends.cuda.table import backend


@backend.kernel(in_place=(0, 2), strided=False)
def sgd(
    out: Any, parameter: Any, gradient: Any, velocity: Any, rate: Any, momentum: Any, decay: Any
) -> None:
    numbers = (rate, momentum, decay)
    arguments = (*out, parameter, gradient, velocity, *numbers, parameter.size)
    kind = parameter.dtype.char
    if all(number.size == 1 for number in numbers):
        launch.over(parameter.size, "update", "sgd", kind, *arguments)
        return
    steps = [layout.steps(number, parameter.shape) for number in numbers]
    walk = launch.struct(layout.walk(parameter.shape, steps))
    launch.over(parameter.size, "update", "sgd_walk", kind, *arguments, walk)
