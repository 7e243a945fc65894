"""Updates in one pass over the parameter, its gradient and what the optimiser remembers."""

from collections.abc import Callable

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import GRAIN, backend
from pareo.backends.compiled.runtime import recording
from pareo.backends.compiled.runtime.arrays import copy
from pareo.backends.compiled.runtime.jit import jit, jit_strict
from pareo.backends.compiled.runtime.thread_pool import split
from pareo.spec import Spec


@jit
def _sgd(
    parameter: Array, velocity: Array, gradient: Array, each: bool, nesterov: bool,
    rate: Array, momentum: Array, decay: Array,
) -> None:  # fmt: skip
    """In place; with `each`, every element has numbers of its own."""
    by, kept, lost = rate[0], momentum[0], decay[0]
    if each:
        for i in range(parameter.size):
            d = gradient[i] + decay[i] * parameter[i]
            velocity[i] = momentum[i] * velocity[i] + d
            step = d + momentum[i] * velocity[i] if nesterov else velocity[i]
            parameter[i] -= rate[i] * step
    elif nesterov:
        for i in range(parameter.size):
            d = gradient[i] + lost * parameter[i]
            step = kept * velocity[i] + d
            velocity[i] = step
            parameter[i] -= by * (d + kept * step)
    else:
        for i in range(parameter.size):
            step = kept * velocity[i] + gradient[i] + lost * parameter[i]
            velocity[i] = step
            parameter[i] -= by * step


@jit
def _adam(
    parameter: Array, first: Array, second: Array, gradient: Array, each: bool, decoupled: bool,
    rate: Array, correction1: Array, correction2: Array, beta1: Array, beta2: Array,
    epsilon: Array, decay: Array,
) -> None:  # fmt: skip
    """In place; with `each`, every element has numbers of its own."""
    one = parameter.dtype.type(1)
    for start in range(0, parameter.size, 1 if each else max(1, parameter.size)):
        stop = start + 1 if each else parameter.size
        kept, lost = beta1[start], beta2[start]
        step, root = rate[start] / correction1[start], np.sqrt(correction2[start])
        coupled = parameter.dtype.type(0) if decoupled else decay[start]
        shrink = one - rate[start] * decay[start] if decoupled else one
        least = epsilon[start]
        for i in range(start, stop):
            d = gradient[i] + coupled * parameter[i]
            mean = kept * first[i] + (one - kept) * d
            square = lost * second[i] + (one - lost) * d * d
            first[i] = mean
            second[i] = square
            parameter[i] = shrink * parameter[i] - step * mean / (np.sqrt(square) / root + least)


@jit
def _lion(
    parameter: Array, velocity: Array, gradient: Array, each: bool, _: bool,
    rate: Array, beta1: Array, beta2: Array, decay: Array,
) -> None:  # fmt: skip
    """In place; with `each`, every element has numbers of its own."""
    one, zero = parameter.dtype.type(1), parameter.dtype.type(0)
    for start in range(0, parameter.size, 1 if each else max(1, parameter.size)):
        stop = start + 1 if each else parameter.size
        by, kept, lost = rate[start], beta1[start], beta2[start]
        shrink = one - by * decay[start]
        for i in range(start, stop):
            d = kept * velocity[i] + (one - kept) * gradient[i]
            step = by if d > 0 else zero * d  # NaN stays NaN
            step = -by if d < 0 else step
            parameter[i] = shrink * parameter[i] - step
            velocity[i] = lost * velocity[i] + (one - lost) * gradient[i]


def _run(
    loop: Callable[..., None],
    out: tuple[Array, ...],
    olds: tuple[Array, ...],
    gradient: Array,
    numbers: tuple[Array, ...],
    flag: bool,
    scratch: tuple[Array, ...],
) -> None:
    """Run a loop that updates arrays in place; a result in other memory is copied there first."""
    arrays = [a.reshape(-1) for a in (*out, gradient)]
    sources = [old.reshape(-1) for old in olds]
    apart = [new.ctypes.data != old.ctypes.data for new, old in zip(out, olds, strict=True)]
    each = bool(scratch)
    for whole, number in zip(scratch, numbers, strict=each):
        copy(whole, number)
    given = scratch or tuple(_as(number, gradient.dtype) for number in numbers)
    factors = [number.reshape(-1) for number in given]

    def work(lo: int, hi: int) -> None:
        for target, source, is_apart in zip(arrays, sources, apart, strict=False):
            if is_apart:
                copy(target[lo:hi], source[lo:hi])
        own = [factor[lo:hi] for factor in factors] if each else factors
        loop(*[a[lo:hi] for a in arrays], each, flag, *own)

    if gradient.size:
        split(work, gradient.size, GRAIN // 2)


def _as(number: Array, dtype: np.dtype) -> Array:
    """A number as an array of a dtype."""
    if number.dtype != dtype:
        recording.refuse("a number of another dtype")
    return np.asarray(number, dtype)


def _scratch(operands: int) -> Callable[..., list[Spec]]:
    """If a number is an array, all are repeated to the shape of the parameter."""

    def specs(out: tuple[Spec, ...], parameter: Spec, *rest: Spec, **_: bool) -> list[Spec]:
        numbers = rest[operands - 1 :]
        return [] if all(n.size == 1 for n in numbers) else [parameter] * len(numbers)

    return specs


@backend.kernel(in_place=(0, 2), strided=False, scratch=_scratch(3), replayable=True)
def sgd(
    out: tuple[Array, Array],
    parameter: Array,
    gradient: Array,
    velocity: Array,
    *numbers: Array,
    nesterov: bool,
    scratch: tuple[Array, ...],
) -> None:
    _run(_sgd, out, (parameter, velocity), gradient, numbers, nesterov, scratch)


@backend.kernel(in_place=(0, 2, 3), strided=False, scratch=_scratch(4), replayable=True)
def adam(
    out: tuple[Array, Array, Array],
    parameter: Array,
    gradient: Array,
    first: Array,
    second: Array,
    *numbers: Array,
    decoupled: bool,
    scratch: tuple[Array, ...],
) -> None:
    _run(_adam, out, (parameter, first, second), gradient, numbers, decoupled, scratch)


@backend.kernel(in_place=(0, 2), strided=False, scratch=_scratch(3), replayable=True)
def lion(
    out: tuple[Array, Array],
    parameter: Array,
    gradient: Array,
    velocity: Array,
    *numbers: Array,
    scratch: tuple[Array, ...],
) -> None:
    _run(_lion, out, (parameter, velocity), gradient, numbers, False, scratch)


@jit
def _step(new: Array, parameter: Array, gradient: Array, rate: Array) -> None:
    by = rate[0]
    for i in range(parameter.size):
        new[i] = parameter[i] - by * gradient[i]


@jit
def _step_in_place(parameter: Array, gradient: Array, rate: Array) -> None:
    by = rate[0]
    for i in range(parameter.size):
        parameter[i] -= by * gradient[i]


@backend.fusion(
    "s = scale(rate, g)\nq = sub(p, s)",
    "q",
    when=lambda out, p, g, rate: p.shape == g.shape and rate.size == 1,
    in_place=(0,),
    replayable=True,
)
def step_down(out: Array, p: Array, g: Array, rate: Array) -> None:
    """One step of plain gradient descent."""
    number = _as(rate, p.dtype).reshape(-1)
    new, old, gradient = (a if a.ndim == 1 else a.reshape(-1) for a in (out, p, g))
    in_place = out is p or out.ctypes.data == p.ctypes.data
    if in_place and p.size < 2 * GRAIN:  # most parameters are small: a split would take longer
        _step_in_place(old, gradient, number)
    elif in_place:
        split(lambda lo, hi: _step_in_place(old[lo:hi], gradient[lo:hi], number), p.size, GRAIN)
    else:
        split(lambda lo, hi: _step(new[lo:hi], old[lo:hi], gradient[lo:hi], number), p.size, GRAIN)


@jit_strict
def _blend(out: Array, a: Array, b: Array, p: Array, q: Array) -> None:
    one, other = p[0], q[0]
    for i in range(out.size):
        out[i] = one * a[i] + other * b[i]


@backend.fusion(
    "s = scale(p, a)\nt = scale(q, b)\ny = add(s, t)",
    "y",
    when=lambda out, a, b, p, q: a.shape == b.shape and p.size == q.size == 1,
    in_place=(0,),
    replayable=True,
)
def blend(out: Array, a: Array, b: Array, p: Array, q: Array) -> None:
    """A moving average, rounded as the three operators round it."""
    numbers = [_as(number, out.dtype).reshape(-1) for number in (p, q)]
    new, old, more = (array if array.ndim == 1 else array.reshape(-1) for array in (out, a, b))
    if out.size < 2 * GRAIN:
        _blend(new, old, more, *numbers)
    else:
        split(lambda lo, hi: _blend(new[lo:hi], old[lo:hi], more[lo:hi], *numbers), new.size, GRAIN)
