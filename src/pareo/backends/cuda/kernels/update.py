"""The optimiser's step."""

from pareo.array import Array
from pareo.backends.cuda.kernels import stacks, strides
from pareo.backends.cuda.runtime import launch
from pareo.backends.cuda.table import backend
from pareo.spec import Spec


@backend.kernel(in_place=(0, 2), strided=False)
def sgd(
    out: Array,
    parameter: Array,
    gradient: Array,
    velocity: Array,
    rate: Array,
    momentum: Array,
    decay: Array,
) -> None:
    numbers = (rate, momentum, decay)
    arguments = (*out, parameter, gradient, velocity, *numbers, parameter.size)
    kind = parameter.dtype.char
    if all(number.size == 1 for number in numbers):
        launch.over(parameter.size, "update", "sgd", kind, *arguments)
        return
    own = (len(parameter), *[1] * (parameter.ndim - 1))
    if parameter.size and all(number.shape == own for number in numbers):
        stacks.sgd(out, parameter, gradient, velocity, numbers)
        return
    steps = [strides.element_strides(number, parameter.shape) for number in numbers]
    walk = launch.struct(strides.walk(parameter.shape, steps))
    launch.over(parameter.size, "update", "sgd_walk", kind, *arguments, walk)


def _alike(q: Spec, p: Spec, rate: Spec, g: Spec) -> bool:
    return p.shape == g.shape and rate.shape == ()


@backend.fusion("s = scale(rate, g)\nq = sub(p, s)", "q", when=_alike, in_place=(0,))
def descend(out: Array, p: Array, rate: Array, g: Array) -> None:
    launch.over(p.size, "update", "descend", p.dtype.char, out, p, rate, g, p.size)
