"""A training in float64 of so many steps, and how far from its end rounding alone may lead.

The gate at the end compares the parameters of a contestant after many steps with those of float64
from the same weights and batches. Rounding grows on the way, in some networks a thousandfold, so
the bound is measured instead of guessed: the same training runs again in float64, and every step is
off in a random direction, by more than the contestant's first steps were off; parameters are
rounded to float32. Where such trainings end is where a right contestant may end.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from pareo.lab.contestants import Task, pareo_step
from pareo.lab.experiment.gate.parity import FAST, MARGIN, NOTHING, TINY, stored
from pareo.lab.experiment.gate.rounding import KINKS, UNIT, Rounded
from pareo.training.step import step_program

STEPS = 128  # of a training that is compared: one in every hundred may be left out
FEWEST = 8  # steps: fewer show nothing that the first gate did not
LONGEST = 1000  # steps of a whole race that are repeated in float64
BUDGET = 6e10  # FLOP of all trainings in float64: 4 to 30 s on one core
DRAWS = 2  # trainings that are disturbed
EVERY = 100  # steps: where one of so many is left out, the last of these is among the last ones
WIDER = 2.0  # how much larger their errors are, at least, than those of the first steps
FURTHER = 4.0  # how much further than these a right contestant may end: two draws are few
# A value that rounding moves across a kink changes the gradient of one image in one step, or of a
# few. Draws may meet no such value, and a contestant one: so much of one step is always allowed
# where there are kinks, as a number of images, and at most.
CROSSED, MOST_CROSSED = 2.0, 0.25
LEVELS = 4.0  # errors are rounded up to a power of this, so that contestants share trainings


@dataclass(frozen=True)
class Course:
    """Where a training in float64 ends after so many steps.

    losses: of all steps. errors: how far from each parameter rounding alone leads. loss_error: the
        same for the mean of the last losses. left_out: how far from each parameter the training
        ends if a step is left out; often less than a step, because later ones lead back.
    """

    losses: list[float]
    parameters: dict[str, Any]
    errors: dict[str, float]
    loss_error: float
    left_out: dict[str, float]


def affordable(task: Task) -> int:
    """How many steps of a task all trainings in float64 can take within BUDGET.

    >>> from pareo import nn
    >>> affordable(Task(nn.Sequential([nn.Dense(3)], (4,)), batch=2)) >= LONGEST
    True
    """
    program = step_program(task.network, task.batch, task.recipe)
    return int(BUDGET / ((2 + DRAWS) * max(1, program.flops)))


def level(error: float) -> float:
    """The relative error of a step with which float64 is disturbed.

    error: the largest of a contestant's first steps.

    >>> level(0.0) == 2.0**-22, level(1e-6) / 1e-6 >= WIDER, level(1e9)
    (True, True, 0.25)
    """
    least = 4 * UNIT
    power = math.ceil(math.log(max(WIDER * error, least) / least, LEVELS))
    return float(min(least * LEVELS**power, 1 / LEVELS))


def reference(task: Task, precision: str = "float32") -> Callable[[int, int, float], Course]:
    """A function of the first step, the number of steps and the relative error of one.

    Every course starts from the task's weights; `first` says which batches come first. Each is
    computed once.
    """
    known: dict[tuple[int, int, float], Course] = {}

    def answer(first: int, steps: int, error: float) -> Course:
        asked = first, steps, level(error)
        if asked not in known:
            known[asked] = _course(task, precision, *asked)
        return known[asked]

    return answer


def tail(losses: Any) -> float:
    """The mean of the last quarter of the losses.

    >>> tail([4.0, 3.0, 2.0, 1.0])
    1.0
    """
    return float(np.mean(losses[-max(1, len(losses) // 4) :]))


def has_kinks(task: Task) -> bool:
    """Whether rounding may choose another branch: at a ReLU or in a maximum.

    >>> from pareo import nn
    >>> has_kinks(Task(nn.Sequential([nn.Dense(3), nn.Sigmoid()], (4,)), batch=2))
    False
    """
    program = step_program(task.network, task.batch, task.recipe)
    return any(one.name in KINKS for one in program.instructions)


def _course(task: Task, precision: str, first: int, steps: int, error: float) -> Course:
    order = task.order(task.count(), first, steps)
    trainer = pareo_step.PareoTrainer(task, "vectorized", "float64")
    half, leave_out = steps // 2, max(0, steps - EVERY)
    noise = Noise(task, precision, error)
    losses: list[float] = []
    before: dict[str, Any] = {}
    for start, stop in pairwise(sorted({0, half, leave_out, steps})):
        if start == leave_out:
            before = trainer.parameters()
        if start in (0, half):
            noise.look(trainer.parameters(), order[start])
        losses += [float(loss) for loss in trainer.run(order[start:stop])]
    end, last = trainer.parameters(), tail(losses)
    left_out = _distances(_trained(trainer, before, order[leave_out + 1 :]), end)
    far, loss_error = dict.fromkeys(end, 0.0), 0.0
    for draw in range(DRAWS):
        found, others = _disturbed(trainer, task, order, noise, draw)
        loss_error = max(loss_error, abs(tail(others) - last))
        for path, distance in _distances(found, end).items():
            far[path] = max(far[path], distance)
    crossed = min(MOST_CROSSED, CROSSED / task.batch) if has_kinks(task) else 0.0
    lengths = {path: length / (DRAWS * steps) for path, length in noise.lengths.items()}
    errors = {
        path: FURTHER * far[path] + crossed * lengths[path] + stored(end[path]) for path in end
    }
    loss_error = FURTHER * loss_error + FAST * abs(last)
    return Course(losses, end, errors, loss_error, left_out)


def _trained(trainer: pareo_step.PareoTrainer, start: dict[str, Any], order: Any) -> dict[str, Any]:
    """The parameters after some steps from others."""
    trainer.load(start)
    if len(order):
        trainer.run(order)
    return trainer.parameters()


def _distances(found: dict[str, Any], wanted: dict[str, Any]) -> dict[str, float]:
    return {path: float(np.linalg.norm(found[path] - a)) for path, a in wanted.items()}


class Noise:
    """The errors of rounding in steps of a task.

    A step is off by a share of its move, and by more where the gradient cancels more than in the
    first steps, which `look` finds; where there is no gradient, by what rounding makes of that.

    lengths: the sum of the lengths of all steps that were disturbed, by parameter.
    """

    def __init__(self, task: Task, precision: str, error: float) -> None:
        self._task, self._precision, self._error = task, precision, error
        self._run = Rounded(task.network, task.batch, task.threads, task.loss)
        self._data = task.data()
        self._far: dict[str, float] = {}
        self._begun: dict[str, float] = {}
        self._growth = 1.0
        self.lengths: dict[str, float] = {}

    def look(self, parameters: dict[str, Any], chosen: Any) -> None:
        """Measure what rounding does to a step from these parameters on these images."""
        images, labels = (a[chosen] for a in self._data)
        reach, found = self._run.reach(parameters, images, labels, self._precision)
        moves = {path: (a, self._task.rate, reach.gradients) for path, a in found.gradients.items()}
        moves |= {path: (a - parameters[path], 1.0, reach.state) for path, a in found.state.items()}
        for path, (move, rate, reached) in moves.items():
            length = float(np.linalg.norm(move))
            rounded, sums = reached[path], reach.sums.get(path, 0.0)
            if length <= NOTHING * (MARGIN * rounded + sums):
                rounded = MARGIN * rounded + sums
            elif rounded:
                share = rounded / length
                self._growth = max(self._growth, share / self._begun.setdefault(path, share))
            self._far[path] = max(self._far.get(path, 0.0), rate * rounded)

    def add(self, path: str, before: Any, after: Any, drawn: np.random.Generator) -> Any:
        """A parameter after a step, with an error in a random direction, as float32 stores it."""
        length = float(np.linalg.norm(after - before))
        self.lengths[path] = self.lengths.get(path, 0.0) + length
        noise = drawn.standard_normal(after.shape)
        far = max(self._far[path], min(self._error * self._growth, 1.0) * length)
        off = after + noise * (far / max(float(np.linalg.norm(noise)), TINY))
        return off.astype(np.float32).astype(np.float64)


def _disturbed(
    trainer: pareo_step.PareoTrainer, task: Task, order: Any, noise: Noise, draw: int
) -> tuple[dict[str, Any], list[float]]:
    """The same training with errors of rounding in every step: its parameters, and its losses."""
    drawn = np.random.default_rng(draw)
    before: dict[str, Any] = {path: np.float64(a) for path, a in task.parameters().items()}
    trainer.load(before)
    losses = []
    for chosen in order:
        losses.append(float(trainer.run(chosen[None])[0]))
        after = trainer.parameters()
        before = {path: noise.add(path, before[path], a, drawn) for path, a in after.items()}
        trainer.load(before)
    return before, losses
