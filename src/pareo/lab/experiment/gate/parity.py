"""The parity gate: only contestants whose first steps are exact enough are timed.

Each step is compared with one in float64 that starts from the contestant's own parameters, so that
the rounding of the first step is not amplified in the second. Tolerances follow from the task: how
far float64 itself moves when values are rounded to the named precision (`rounding`), and the error
of adding up a gradient and of storing a parameter in float32.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo.lab.contestants import Task
from pareo.lab.experiment.gate.rounding import UNIT, Found, Reach, Rounded
from pareo.nn.normalisation import BatchNorm

# How much further off than the rounded float64 a right contestant may be: docs/parity.md has
# measurements. PyTorch and JAX in bfloat16 on a CPU are at 0.9 to 1.9 times the rounded float64.
MARGIN = 4.0
# Of a move or a loss: errors of fast (Winograd) convolutions are relative to the norm of the whole
# result, up to 5e-6 of it on `compiled`. Four times that is a tenth of tf32's error.
FAST = 2e-5
# Of a move in its own direction, in any precision: a gradient that is left out or applied twice is
# off by 1. Rounding may drown a gradient, but hardly changes it in its own direction.
MOST = 0.75
# A gradient that is this part of the sum of its terms' errors is 0: that of a bias before a batch
# normalisation is. In float64 it is 1e-9 of them.
NOTHING = 1e-6
TINY = float(np.finfo(np.float32).tiny)  # anything smaller may be 0 in float32


@dataclass(frozen=True)
class Exact:
    """A step in float64, and how far from it a contestant's loss and parameters may be.

    state: the paths of running statistics.
    """

    loss: float
    parameters: dict[str, Any]
    loss_error: float
    errors: dict[str, float]
    state: frozenset[str] = frozenset()


def reference(
    task: Task,
    precision: str = "float32",
    order: Callable[[int], Any] | None = None,
    repeated: int = 1,
) -> Callable[[int, dict[str, Any]], Exact]:
    """pareo in float64: a function of a step's number and the parameters before it.

    Args:
        order: the images of a step, where they are not the task's own.
        repeated: how often contestants repeat each image in a batch.

    The effect of rounding is measured once for each step, along the path that float64 takes from
    the first weights, and is the same for every contestant.
    """
    run = Rounded(task.network, task.batch, task.threads, task.loss)
    images, labels = task.data()
    count = task.count()
    of_step = order or (lambda step: task.order(count, step, 1))
    way = [task.gate_parameters()]
    reaches: list[Reach] = []
    begun: list[Exact] = []  # the first step from the first weights, the same for all

    def batch(step: int) -> tuple[Any, Any]:
        chosen = of_step(step)[0]
        return images[chosen], labels[chosen]

    def reach(step: int) -> Reach:
        while len(reaches) <= step:
            here = len(reaches)
            found, step_here = run.reach(way[here], *batch(here), precision)
            reaches.append(found)
            if not here:
                begun.append(exact_step(task, way[0], step_here, found, task.batch, repeated))
            way.append(moved(way[here], step_here, task.rate))
        return reaches[step]

    def answer(step: int, parameters: dict[str, Any]) -> Exact:
        allowed = reach(step)
        if not step and all(np.array_equal(a, parameters[path]) for path, a in way[0].items()):
            return begun[0]
        found = run(parameters, *batch(step))
        return exact_step(task, parameters, found, allowed, task.batch, repeated)

    return answer


def moved(parameters: dict[str, Any], found: Found, rate: float) -> dict[str, Any]:
    """The parameters after one step of plain SGD, and the new state of layers, in float64."""
    return {
        path: found.state[path] if path in found.state else start - rate * found.gradients[path]
        for path, start in parameters.items()
    }


def exact_step(
    task: Task, start: dict[str, Any], found: Found, reach: Reach, images: int, repeated: int = 1
) -> Exact:
    """A step of float64 from its gradients and its new state, with tolerances.

    images: those of the exact step. repeated: how often contestants repeat each of them.
    """
    errors = {}
    state = of_samples(task, start, found.state, images, repeated)
    for path, before in start.items():
        if path in state:
            length = float(np.linalg.norm(state[path] - before))
            far = MARGIN * reach.state[path] + FAST * length
            errors[path] = far + stored(before)
            continue
        length = float(np.linalg.norm(found.gradients[path]))
        sums = reach.sums.get(path, 0.0) * repeated**0.5
        rounded = reach.gradients[path] + reach.kinks.get(path, 0.0)
        far = MARGIN * rounded + FAST * length + sums
        errors[path] = task.rate * far + stored(before)
    loss_error = MARGIN * reach.loss + FAST * abs(found.loss)
    after = moved(start, found._replace(state=state), task.rate)
    return Exact(found.loss, after, loss_error, errors, frozenset(state))


def of_samples(
    task: Task, start: dict[str, Any], state: dict[str, Any], images: int, repeated: int
) -> dict[str, Any]:
    """The new state of a batch in which each image is repeated.

    Repeated images have the same mean and the same mean square. But a running variance is that of a
    sample: it is divided by one less than the count, which is larger.
    """
    if repeated == 1 or not state:
        return state
    found = dict(state)
    for path, layer, shape in task.network.walk(task.network.inputs):
        if isinstance(layer, BatchNorm):
            name = f"{path}.variance" if path else "variance"
            count = images * math.prod(shape[1:])
            share = (count - 1) * repeated / (count * repeated - 1)
            kept = (1 - layer.momentum) * np.asarray(start[name], np.float64)
            found[name] = kept + share * (state[name] - kept)
    return found


def stored(parameter: Any) -> float:
    """Rounding error of a parameter that float32 computes and stores: once each.

    >>> stored(np.ones(1)) == 2 * 2.0**-24
    True
    """
    return float(2 * UNIT * np.linalg.norm(parameter) + TINY * np.sqrt(np.size(parameter)))


def by_chance(error: dict[str, float]) -> bool:
    """Whether a step may be inexact because a rounded value lies on the other side of a kink.

    A loss has no kinks, and neither have running statistics: they are right in every step.
    """
    right = max(error["loss_share"], error.get("state_share", 0.0)) <= 1
    return right and bool(np.isfinite(error["parameter"]))


def parity(
    task: Task,
    steps: Any,
    exact: Callable[[int, dict[str, Any]], Exact],
    error: dict[str, float],
    first: int = 0,
    before: dict[str, Any] | None = None,
) -> str:
    """What differs from the exact steps, and by how much; empty where all steps agree.

    Parameters are compared by how far they moved: a gradient that is 1 % off is 1 % off here, for
    any learning rate. `error` receives the largest relative errors of a loss and of a parameter,
    the largest median of parameters, and the largest shares of the tolerances. Steps are numbered
    from `first`, and start from the parameters `before`.
    """
    before = before or task.gate_parameters()
    for number, (loss, after) in enumerate(steps, start=first):
        true = exact(number, before)
        differs = _loss_differs(loss, true, error, number)
        differs = differs or _moves_differ(before, after, true, error, number)
        if differs:
            return differs
        before = after
    return ""


def _loss_differs(loss: float, true: Exact, error: dict[str, float], number: int) -> str:
    error.update({name: error.get(name, 0.0) for name in ("parameter", "median", "share")})
    size = max(abs(true.loss), TINY)
    off = abs(loss - true.loss)
    _note(error, "loss", off / size)
    _note(error, "loss_share", off / true.loss_error)
    if off <= true.loss_error:
        return ""
    allowed = true.loss_error / size
    return f"the loss in step {number + 1} is {off / size:.1e} off, {allowed:.0e} allowed"


def _moves_differ(
    before: dict[str, Any],
    after: dict[str, Any],
    true: Exact,
    error: dict[str, float],
    number: int,
) -> str:
    found, wrong, furthest = [], "", 1.0
    for path, start in before.items():
        if after[path].shape != start.shape:
            return f"{path} has the shape {after[path].shape}, not {start.shape}"
        length = float(np.linalg.norm(true.parameters[path] - start))
        length = length if length > NOTHING * true.errors[path] else 0.0
        distance = float(np.linalg.norm(after[path] - true.parameters[path]))
        found.append(distance / length if length else distance)
        allowed = true.errors[path]
        share = distance / allowed
        most = MOST * length + stored(start)
        if length and allowed > most:
            right = (true.parameters[path] - start) / length
            along = abs(float(np.vdot(after[path] - start, right)) - length)
            share, allowed = max(share, along / most), most
        _note(error, "parameter", found[-1])
        _note(error, "share", share)
        if path in true.state:
            _note(error, "state_share", share)
        share = np.inf if np.isnan(share) else share
        if share > furthest:
            furthest = share
            allowed = allowed / length if length else allowed
            what = "off" if length else "from where it should have stayed"
            wrong = (
                f"{path} moved {found[-1]:.1e} {what} in step {number + 1}, {allowed:.0e} allowed"
            )
    _note(error, "median", float(np.median(found)))
    return wrong


def _note(error: dict[str, float], name: str, value: float) -> None:
    error[name] = float(np.maximum(error.get(name, 0.0), value))
