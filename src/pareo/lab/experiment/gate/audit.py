"""The audit after the last round: whether a contestant still trains in turns like the timed ones.

The gate checks single steps before the race. At the end every contestant takes two more turns,
calls of the same kind and length. One continues where the last ended: parameters must move. The
other starts from the first weights and repeats a few images: its losses must be those of float64.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pareo.lab.contestants import Task, pareo_step
from pareo.lab.experiment.gate.repeated_batch import chosen, few_of

STEPS = 4  # of the second turn that are compared: rounding has not grown much by then
# A contestant that does not train is off by all that the steps have gained. One that rounds is off
# by a small part of it, more where ReLUs switch or factors have 8 bits. Half lies between.
OFF = 0.5
# The largest relative error of a loss by rounding: a sum of products of factors in this precision.
ROUNDING = {"float32": 1e-5, "tf32": 1e-3, "bfloat16": 1e-2}
LEARNED = 1e-6  # a loss below which steps may be too small for float32


@dataclass(frozen=True)
class Audited:
    """The turns of an audit: whether parameters moved in the first, the losses of the second."""

    moved: bool
    losses: list[float]


def order_of(task: Task, images: int, steps: int) -> Any:
    """The same few images in every step; `images` is how many there are in all.

    >>> from pareo import nn
    >>> task = Task(nn.Sequential([nn.Dense(3)], (4,), "small"), batch=2)
    >>> order_of(task, images=64, steps=3).tolist()
    [[0, 1], [0, 1], [0, 1]]
    """
    few = few_of(task, task.batch).batch
    return chosen(few, 0, task.batch, images).repeat(steps, axis=0)


def reference(task: Task) -> Callable[[int], list[float]]:
    """A function of the batch size: the losses of these steps in float64."""
    known: dict[int, list[float]] = {}

    def answer(batch: int) -> list[float]:
        small = few_of(task, batch)
        if small.batch not in known:
            trainer = pareo_step.PareoTrainer(small, "vectorized", "float64")
            losses = trainer.run(order_of(small, small.count(), STEPS))
            known[small.batch] = [float(loss) for loss in losses]
        return known[small.batch]

    return answer


def refusal(found: Audited, exact: list[float], precision: str) -> str:
    """What is wrong with the turns of an audit, in a sentence; empty where nothing is.

    >>> exact = [2.0, 1.5, 1.0]
    >>> refusal(Audited(True, [2.0, 1.5, 1.01]), exact, "float32")
    ''
    >>> refusal(Audited(True, [2.0, 2.0, 2.0]), exact, "float32")
    'in a turn after the last round, the loss of step 3 was 2, not 1: it does not train'
    """
    if not found.moved:
        return "in a turn after the last round, its parameters did not move: it does not train"
    known = exact[: len(found.losses)]
    if not all(map(math.isfinite, known)):  # the rate is too high for a few images
        return ""
    gained = max(abs(right - known[0]) for right in known)
    for number, (loss, right) in enumerate(zip(found.losses, known, strict=True), 1):
        rounded = ROUNDING[precision] * max(abs(right), 1e-3)
        if not abs(loss - right) <= rounded + OFF * gained:
            return (
                f"in a turn after the last round, the loss of step {number} was {loss:.4g}, not "
                f"{right:.4g}: it does not train"
            )
    return ""
