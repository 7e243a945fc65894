"""A batch of any size that repeats a few images, so that an exact step of a few can judge it.

A batch that repeats a few images has the mean loss and the mean gradients of those few. So the
float64 reference computes a few images, and a contestant at batch 512 is compared with it on those
images, repeated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo.lab.contestants import Task
from pareo.lab.experiment.gate import parity
from pareo.training.own_loss import is_mean

MOST = 8  # different images in a batch
BATCHES = 4  # of different images: one or two for the gate, others after a kink


def different(batch: int) -> int:
    """Number of different images in a batch of the gate: a divisor of the batch size.

    >>> different(4), different(512), different(12), different(13)
    (4, 8, 6, 1)
    """
    return next(few for few in range(min(batch, MOST), 0, -1) if batch % few == 0)


def chosen(few: int, which: int, batch: int, images: int) -> Any:
    """The images of one batch of the gate, as an order of one step.

    few: different images. which: the number of the batch. images: how many there are in all.


    >>> chosen(2, 1, batch=4, images=64)
    array([[2, 3, 2, 3]])
    """
    images = min(images, BATCHES * few)
    return np.tile(np.arange(which * few, (which + 1) * few) % images, batch // few)[None]


@dataclass(frozen=True)
class Few(Task):
    """The first images of a task in batches of a few, whatever the task's own batch size is."""

    def count(self) -> int:
        return min(super().count(), BATCHES * self.batch)

    def data(self) -> tuple[Any, Any]:
        images, labels = super().data()
        return images[: self.count()].copy(), labels[: self.count()]


def few_of(task: Task, batch: int) -> Few:
    """The task of a few images that represents a task at a batch size.

    Where the loss is no mean over images, these are as many as the batch.
    """
    few = different(batch) if is_mean(task.loss, task.network.classes) else batch
    return Few(task.network, few, task.threads, task.rate, task.seed, task.source, loss=task.loss)


def reference(task: Task, precision: str = "float32") -> Callable[..., Any]:
    """As `parity.reference`, for a contestant whose steps repeat images: it is ready sooner."""
    small = few_of(task, task.batch)
    few, images = small.batch, small.count()
    return parity.reference(
        small, precision, lambda step: chosen(few, step, few, images), task.batch // few
    )
