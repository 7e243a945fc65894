"""SGD updates in one pass over the parameter, its gradient and its velocity, if there is one."""

from pareo.array import Array
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split
from pareo.spec import Spec


@jit
def _sgd(
    new: Array,
    new_velocity: Array,
    parameter: Array,
    gradient: Array,
    velocity: Array,
    rate: float,
    momentum: float,
    decay: float,
) -> None:
    for i in range(parameter.size):
        step = momentum * velocity[i] + gradient[i] + decay * parameter[i]
        new_velocity[i] = step
        new[i] = parameter[i] - rate * step


@jit
def _sgd_each(
    new: Array,
    new_velocity: Array,
    parameter: Array,
    gradient: Array,
    velocity: Array,
    rate: Array,
    momentum: Array,
    decay: Array,
) -> None:
    for i in range(parameter.size):
        step = momentum[i] * velocity[i] + gradient[i] + decay[i] * parameter[i]
        new_velocity[i] = step
        new[i] = parameter[i] - rate[i] * step


def _number_scratch(
    out: tuple[Spec, Spec], parameter: Spec, gradient: Spec, velocity: Spec, *numbers: Spec
) -> list[Spec]:
    return [] if all(number.size == 1 for number in numbers) else [parameter] * 3


@backend.kernel(in_place=(0, 2), strided=False, scratch=_number_scratch)
def sgd(
    out: tuple[Array, Array],
    parameter: Array,
    gradient: Array,
    velocity: Array,
    *numbers: Array,
    scratch: tuple[Array, ...],
) -> None:
    arrays = [a.reshape(-1) for a in (*out, parameter, gradient, velocity)]
    if not scratch:
        kind = parameter.dtype.type
        scalars = [kind(number.item()) for number in numbers]
        split(lambda lo, hi: _sgd(*[a[lo:hi] for a in arrays], *scalars), parameter.size, GRAIN)
        return
    for whole, number in zip(scratch, numbers, strict=True):
        whole[...] = number
        arrays.append(whole.reshape(-1))
    split(lambda lo, hi: _sgd_each(*[a[lo:hi] for a in arrays]), parameter.size, GRAIN)


@jit
def _step(new: Array, parameter: Array, gradient: Array, rate: float) -> None:
    for i in range(parameter.size):
        new[i] = parameter[i] - rate * gradient[i]


@jit
def _step_in_place(parameter: Array, gradient: Array, rate: float) -> None:
    for i in range(parameter.size):
        parameter[i] -= rate * gradient[i]


@backend.fusion(
    "s = scale(rate, g)\nq = sub(p, s)",
    "q",
    when=lambda out, p, g, rate: p.shape == g.shape and rate.size == 1,
    in_place=(0,),
)
def step_down(out: Array, p: Array, g: Array, rate: Array) -> None:
    """One step of plain gradient descent."""
    number = p.dtype.type(rate.item())
    new, old, gradient = (a.reshape(-1) for a in (out, p, g))
    if out.ctypes.data == p.ctypes.data:
        split(lambda lo, hi: _step_in_place(old[lo:hi], gradient[lo:hi], number), p.size, GRAIN)
    else:
        split(lambda lo, hi: _step(new[lo:hi], old[lo:hi], gradient[lo:hi], number), p.size, GRAIN)
