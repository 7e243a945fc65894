"""A short training from several seeds: how a precision is judged whose single steps say little.

A step in bfloat16 may be off by a tenth, so no bound on parameters after many steps would refuse
anything. What counts is whether such a training learns as much: its last losses, and the loss and
the accuracy of its parameters, which are computed here. Weights and batches of other seeds end
elsewhere, and their spread is the measure of what a difference means.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

import numpy as np

from pareo.device import Device
from pareo.lab.contestants import Task, pareo_step
from pareo.lab.experiment.gate.course import tail
from pareo.training.evaluate import Evaluator
from pareo.training.step import step_program

SEEDS = (1, 2, 3, 4)
WIDE = 2.0  # of the seeds' own spread: the mean difference that is allowed
# Standard errors of the mean of four differences, below which it may be chance. Where a training
# in bfloat16 ends as far from float64's as another seed's does, 0.7 % of right ones are refused;
# by the spread alone, which four seeds do not tell well, 6.6 %.
SURE = 5.0
# What is compared of each training, and by how much it may always be off: losses by the rounding
# of a loss in bfloat16, as a share; an accuracy by a few of the images.
MEASURES = (("loss", 1e-2), ("loss afterwards", 1e-2), ("accuracy", 0.0))
POINTS = 0.05
FLOP = 1e10  # of all images that are evaluated, if that is enough for the fewest
FEWEST, MOST = 16, 512  # of these images

Learned = list[float]  # the measures of one training


def reference(task: Task) -> Callable[[int], list[Learned]]:
    """A function of the number of steps: what float64 learns, for each seed."""

    def answer(steps: int) -> list[Learned]:
        evaluate = evaluation(task)
        found = []
        for seed in SEEDS:
            other = replace(task, seed=seed)
            trainer = pareo_step.PareoTrainer(task, "vectorized", "float64")
            trainer.load(other.parameters())
            last = tail(trainer.run(other.order(task.count(), 0, steps)))
            found.append([last, *evaluate(trainer.parameters())])
        return found

    return answer


def evaluation(task: Task) -> Callable[[Mapping[str, Any]], list[float]]:
    """A function of parameters: their loss and accuracy on test images, or on some to train on."""
    known: list[Any] = []  # what is built for the first

    def answer(parameters: Mapping[str, Any]) -> list[float]:
        if not known:
            images, labels = task.test_data() or task.data()
            each = step_program(task.network, 1).flops / 3  # a forward pass
            count = int(min(max(FLOP / each, FEWEST), MOST, len(labels)))
            place = Device("vectorized", threads=task.threads)
            batch = min(count, 128)
            known.extend([Evaluator(task.network, place, batch), images[:count], labels[:count]])
        evaluate, images, labels = known
        rounded = {path: np.asarray(a, np.float32) for path, a in parameters.items()}
        loss, accuracy = evaluate(rounded, images, labels, task.loss)
        return [float(loss), float(accuracy or 0.0)]

    return answer


def refusal(found: Sequence[Learned], right: Sequence[Learned]) -> str:
    """What is wrong with trainings from several seeds, in a sentence; empty where nothing is.

    >>> right = [[0.50, 0.4, 0.9], [0.63, 0.5, 0.8], [0.54, 0.5, 0.9], [0.59, 0.4, 0.9]]
    >>> refusal([[loss + 0.01, after, share] for loss, after, share in right], right)
    ''
    >>> refusal([[2.3, after, share] for _, after, share in right], right)
    'after a short training from 4 seeds its loss is 2.3, not 0.565; seeds differ by 0.057'
    >>> refusal([[loss, after, 0.1] for loss, after, _ in right], right)
    'after a short training from 4 seeds its accuracy is 0.1, not 0.875; seeds differ by 0.05'
    """
    for number, (what, share) in enumerate(MEASURES):
        ours, theirs = ([one[number] for one in side] for side in (found, right))
        if not all(map(math.isfinite, theirs)):
            continue
        spread, expected = stdev(theirs), mean(theirs)
        apart = [one - other for one, other in zip(ours, theirs, strict=True)]
        least = share * abs(expected) if share else POINTS
        chance = SURE * stdev(apart) / len(apart) ** 0.5 if all(map(math.isfinite, apart)) else 0.0
        if not abs(mean(apart)) <= max(WIDE * spread + least, chance):
            return (
                f"after a short training from {len(theirs)} seeds its {what} is {mean(ours):.3g}, "
                f"not {expected:.3g}; seeds differ by {spread:.2g}"
            )
    return ""
