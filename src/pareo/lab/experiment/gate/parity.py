"""The parity gate: no time is shown for a contestant whose first steps are not exact enough.

Each step is held against one in float64 from the contestant's own parameters before it, so that
what rounding did in the first is not counted again, and amplified, in the second. What is allowed
follows from the task: how far float64 itself moves when values are rounded to the named precision
(`lab.rounding`), and what it costs to add up a gradient and to store a parameter in float32.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo.lab.contestants import Task
from pareo.lab.experiment.gate.rounding import UNIT, Reach, Rounded

# How much further than the rounded float64 an honest contestant may be: docs/parity.md has what was
# measured. PyTorch's and JAX's bfloat16 on a CPU come out at 0.9 to 1.9 of the rounded float64.
MARGIN = 4.0
# Of a move or a loss: fast convolutions (Winograd's) round by a part of a result's norm, up to 5e-6
# of it on `compiled`, whatever the single value is; four times that is a tenth of what tf32 does.
FAST = 2e-5
# Of a move, whatever the precision: who leaves a gradient out or takes it twice is off by 1.
MOST = 0.75
TINY = float(np.finfo(np.float32).tiny)  # what is smaller may be 0 in float32


@dataclass(frozen=True)
class Exact:
    """A step in float64, and how far from it a contestant's loss and parameters may be."""

    loss: float
    parameters: dict[str, Any]
    loss_error: float
    errors: dict[str, float]


def reference(
    task: Task,
    precision: str = "float32",
    order: Callable[[int], Any] | None = None,
    repeated: int = 1,
) -> Callable[[int, dict[str, Any]], Exact]:
    """pareo in float64: one step by its number, from any parameters.

    `order` tells the images of a step, where they are not the task's own; contestants may take
    each of them `repeated` times. How far rounding reaches is measured once for each step, on the
    way that float64 takes from the first weights, and is the same for every contestant.
    """
    run = Rounded(task.network, task.batch, task.threads)
    images, labels = task.data()
    count = task.count()
    of_step = order or (lambda step: task.order(count, step, 1))
    way = [task.parameters()]
    reaches: list[Reach] = []
    begun: list[Exact] = []  # the first step from the first weights, which is everyone's

    def batch(step: int) -> tuple[Any, Any]:
        chosen = of_step(step)[0]
        return images[chosen], labels[chosen]

    def reach(step: int) -> Reach:
        while len(reaches) <= step:
            here = len(reaches)
            found, loss, gradients = run.reach(way[here], *batch(here), precision)
            reaches.append(found)
            if not here:
                begun.append(exact_step(task, way[0], loss, gradients, found, repeated))
            way.append(moved(way[here], gradients, task.rate))
        return reaches[step]

    def answer(step: int, parameters: dict[str, Any]) -> Exact:
        allowed = reach(step)
        if not step and all(np.array_equal(a, parameters[path]) for path, a in way[0].items()):
            return begun[0]
        loss, gradients = run(parameters, *batch(step))
        return exact_step(task, parameters, loss, gradients, allowed, repeated)

    return answer


def moved(parameters: dict[str, Any], gradients: dict[str, Any], rate: float) -> dict[str, Any]:
    """The parameters after one step of plain SGD, in float64."""
    return {path: start - rate * gradients[path] for path, start in parameters.items()}


def exact_step(
    task: Task,
    start: dict[str, Any],
    loss: float,
    gradients: dict[str, Any],
    reach: Reach,
    repeated: int = 1,
) -> Exact:
    """A step of float64 from its gradients, with what is allowed."""
    errors = {}
    for path, before in start.items():
        length = float(np.linalg.norm(gradients[path]))
        far = MARGIN * reach.gradients[path] + FAST * length
        far += reach.sums.get(path, 0.0) * repeated**0.5
        if length:
            far = min(far, MOST * length)
        errors[path] = task.rate * far + stored(before)
    loss_error = MARGIN * reach.loss + FAST * abs(loss)
    return Exact(loss, moved(start, gradients, task.rate), loss_error, errors)


def stored(parameter: Any) -> float:
    """How far rounding takes a parameter that float32 computes and stores: once each.

    >>> stored(np.ones(1)) == 2 * 2.0**-24
    True
    """
    return float(2 * UNIT * np.linalg.norm(parameter) + TINY * np.sqrt(np.size(parameter)))


def by_chance(error: dict[str, float]) -> bool:
    """Whether a step that is not exact may have fallen on the other side of a kink.

    A loss has no kinks: it is right in every step.
    """
    return error["loss_share"] <= 1 and bool(np.isfinite(error["parameter"]))


def parity(
    task: Task,
    steps: Any,
    exact: Callable[[int, dict[str, Any]], Exact],
    error: dict[str, float],
    first: int = 0,
    before: dict[str, Any] | None = None,
) -> str:
    """Empty where every step agrees with the exact one, else what differs and by how much.

    Parameters are compared by how they moved: a gradient that is 1 % off is 1 % off here, however
    small the rate. `error` is given the largest part by which a loss and a parameter were off, the
    largest median of parameters, and the largest shares of what is allowed. Steps count from
    `first`, from the parameters `before` it.
    """
    before = before or task.parameters()
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
        distance = float(np.linalg.norm(after[path] - true.parameters[path]))
        found.append(distance / length if length else distance)
        share = distance / true.errors[path]
        _note(error, "parameter", found[-1])
        _note(error, "share", share)
        share = np.inf if np.isnan(share) else share
        if share > furthest:
            furthest = share
            allowed = true.errors[path] / length if length else true.errors[path]
            what = "off" if length else "from where it should have stayed"
            wrong = (
                f"{path} moved {found[-1]:.1e} {what} in step {number + 1}, {allowed:.0e} allowed"
            )
    _note(error, "median", float(np.median(found)))
    return wrong


def _note(error: dict[str, float], name: str, value: float) -> None:
    error[name] = float(np.maximum(error.get(name, 0.0), value))
