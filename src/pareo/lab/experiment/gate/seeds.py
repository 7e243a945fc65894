"""A short training from several seeds: how a precision is judged whose single steps say little.

A step in bfloat16 may be off by a tenth, so no bound on parameters after many steps would refuse
anything. What counts is whether such a training learns as much. Weights and batches of other seeds
end in other losses, and their spread is the measure of what a difference means.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import mean, stdev

from pareo.lab.contestants import Task, pareo_step
from pareo.lab.experiment.gate.course import tail

SEEDS = (1, 2, 3, 4)
WIDE = 2.0  # of the seeds' own spread: the mean difference that is allowed
LEAST = 1e-2  # of a loss, whatever the spread: the rounding of a loss in bfloat16


def reference(task: Task) -> Callable[[int], list[float]]:
    """A function of the number of steps: the last losses in float64, one for each seed."""

    def answer(steps: int) -> list[float]:
        found = []
        for seed in SEEDS:
            other = replace(task, seed=seed)
            trainer = pareo_step.PareoTrainer(task, "vectorized", "float64")
            trainer.load(other.parameters())
            found.append(tail(trainer.run(other.order(task.count(), 0, steps))))
        return found

    return answer


def refusal(losses: Sequence[float], right: Sequence[float]) -> str:
    """What is wrong with the last losses of several seeds, in a sentence; empty where nothing is.

    >>> refusal([0.51, 0.62, 0.55, 0.58], [0.50, 0.63, 0.54, 0.59])
    ''
    >>> refusal([2.3, 2.3, 2.3, 2.3], [0.50, 0.63, 0.54, 0.59])
    'after a short training from 4 seeds its loss is 2.3, not 0.565; seeds differ by 0.057'
    """
    spread, expected, found = stdev(right), mean(right), mean(losses)
    if not all(map(math.isfinite, right)):
        return ""
    off = abs(mean(one - other for one, other in zip(losses, right, strict=True)))
    if off <= WIDE * spread + LEAST * abs(expected):
        return ""
    return (
        f"after a short training from {len(right)} seeds its loss is {found:.3g}, not "
        f"{expected:.3g}; seeds differ by {spread:.2g}"
    )
