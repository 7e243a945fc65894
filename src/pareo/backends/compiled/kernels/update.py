"""SGD updates in one pass over the parameter, its gradient and, if there is one, its velocity."""

from typing import Any

from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import split
from pareo.spec import Spec


@jit
def _sgd(
    new: Any,
    speed: Any,
    parameter: Any,
    gradient: Any,
    velocity: Any,
    rate: Any,
    momentum: Any,
    decay: Any,
) -> None:
    for i in range(parameter.size):
        step = momentum * velocity[i] + gradient[i] + decay * parameter[i]
        speed[i] = step
        new[i] = parameter[i] - rate * step


@jit
def _sgd_each(
    new: Any,
    speed: Any,
    parameter: Any,
    gradient: Any,
    velocity: Any,
    rate: Any,
    momentum: Any,
    decay: Any,
) -> None:
    for i in range(parameter.size):
        step = momentum[i] * velocity[i] + gradient[i] + decay[i] * parameter[i]
        speed[i] = step
        new[i] = parameter[i] - rate[i] * step


def _repeated(out: Any, parameter: Spec, gradient: Spec, velocity: Spec, *numbers: Spec) -> list:
    return [] if all(number.size == 1 for number in numbers) else [parameter] * 3


@backend.kernel(in_place=(0, 2), strided=False, scratch=_repeated)
def sgd(
    out: Any, parameter: Any, gradient: Any, velocity: Any, *numbers: Any, scratch: tuple[Any, ...]
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
def _down(new: Any, parameter: Any, gradient: Any, rate: Any) -> None:
    for i in range(parameter.size):
        new[i] = parameter[i] - rate * gradient[i]


@jit
def _down_here(parameter: Any, gradient: Any, rate: Any) -> None:
    for i in range(parameter.size):
        parameter[i] -= rate * gradient[i]


@backend.fusion(
    "s = scale(rate, g)\nq = sub(p, s)",
    "q",
    when=lambda out, p, g, rate: p.shape == g.shape and rate.size == 1,
    in_place=(0,),
)
def step_down(out: Any, p: Any, g: Any, rate: Any) -> None:
    """A parameter down its gradient."""
    number = p.dtype.type(rate.item())
    new, old, slope = (a.reshape(-1) for a in (out, p, g))
    if out.ctypes.data == p.ctypes.data:
        split(lambda lo, hi: _down_here(old[lo:hi], slope[lo:hi], number), p.size, GRAIN)
    else:
        split(lambda lo, hi: _down(new[lo:hi], old[lo:hi], slope[lo:hi], number), p.size, GRAIN)
