"""The optimisers' steps."""

from collections.abc import Sequence

from pareo.array import Array
from pareo.backends.cuda.kernels import stacks, strides
from pareo.backends.cuda.runtime import launch
from pareo.backends.cuda.table import backend
from pareo.spec import Spec


def _step(name: str, arrays: Sequence[Array], numbers: Sequence[Array]) -> None:
    """Launch a kernel of update.cu; `arrays` have one shape, and `numbers` broadcast to it."""
    count, kind = arrays[0].size, arrays[0].dtype.char
    arguments = (*arrays, *numbers, count)
    if all(number.size == 1 for number in numbers):
        launch.over(count, "update", name, kind, *arguments)
    elif count:
        shape = arrays[0].shape
        steps = [strides.element_strides(number, shape) for number in numbers]
        walk = launch.struct(strides.walk(shape, steps))
        launch.over(count, "update", f"{name}_walk", kind, *arguments, walk)


@backend.kernel(in_place=(0, 2), strided=False)
def sgd(
    out: Array,
    parameter: Array,
    gradient: Array,
    velocity: Array,
    rate: Array,
    momentum: Array,
    decay: Array,
    nesterov: bool,
) -> None:
    numbers = (rate, momentum, decay)
    one_for_each = bool(parameter.ndim and parameter.size) and all(
        number.shape == (len(parameter), *[1] * (parameter.ndim - 1)) for number in numbers
    )
    if one_for_each and not nesterov and len(parameter) > 1:
        stacks.sgd(out, parameter, gradient, velocity, numbers)
        return
    name = "sgd_nesterov" if nesterov else "sgd"
    _step(name, (*out, parameter, gradient, velocity), numbers)


@backend.kernel(in_place=(0, 2, 3), strided=False)
def adam(
    out: Array,
    parameter: Array,
    gradient: Array,
    first: Array,
    second: Array,
    *numbers: Array,
    decoupled: bool,
) -> None:
    name = "adamw" if decoupled else "adam"
    _step(name, (*out, parameter, gradient, first, second), numbers)


@backend.kernel(in_place=(0, 2), strided=False)
def lion(out: Array, parameter: Array, gradient: Array, velocity: Array, *numbers: Array) -> None:
    _step("lion", (*out, parameter, gradient, velocity), numbers)


def _alike(q: Spec, p: Spec, rate: Spec, g: Spec) -> bool:
    return p.shape == g.shape and rate.shape == ()


@backend.fusion("s = scale(rate, g)\nq = sub(p, s)", "q", when=_alike, in_place=(0,))
def descend(out: Array, p: Array, rate: Array, g: Array) -> None:
    launch.over(p.size, "update", "descend", p.dtype.char, out, p, rate, g, p.size)
