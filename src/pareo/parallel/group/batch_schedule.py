"""The schedule of a run, which all workers follow: its batches, their shards, its losses."""

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pareo.parallel.group.result import Progress
from pareo.parallel.group.shared_memory import SharedArrays
from pareo.parallel.group.worker_group import WorkerGroup
from pareo.spec import Spec
from pareo.training.fit import shuffled
from pareo.training.settings import Settings

REPORT_SECONDS = 0.2


def shard(count: int, rank: int, workers: int) -> tuple[int, int]:
    """The start and the end of a worker's share of `count` items, as even as possible.

    >>> [shard(5, rank, 2) for rank in range(2)]
    [(0, 2), (2, 5)]
    """
    return count * rank // workers, count * (rank + 1) // workers


def batch_sizes(count: int, batch: int) -> list[int]:
    """The sizes of the batches of an epoch; the last may be smaller.

    >>> batch_sizes(10, 4)
    [4, 4, 2]
    """
    size = min(batch, count)
    whole, rest = divmod(count, size)
    return [size] * whole + ([rest] if rest else [])


class ScheduledStep(NamedTuple):
    """One step: its number from 0, the indices of its images, and the optimizer's numbers."""

    number: int
    indices: np.ndarray
    numbers: tuple[float, ...]


def for_epochs(settings: Settings, epochs: int) -> Settings:
    """The settings of a run of so many epochs, on which the schedule of the rate may depend.

    >>> for_epochs(Settings(schedule="cosine"), 3).epochs
    3
    """
    return settings if settings.epochs is not None else settings.changed(epochs=epochs)


def numbers_of(settings: Settings, step: int, per_epoch: int) -> tuple[float, ...]:
    """The optimizer's numbers for a step, counted from 0 over the whole run; the rate first.

    >>> numbers_of(Settings(rate=0.5, schedule="step:1:0.1"), step=2, per_epoch=2)
    (0.05,)
    """
    rate = float(settings.rates(step, 1, per_epoch)[0])
    return settings.optimizer.numbers(step, rate)


class BatchSchedule:
    """All steps of a run on `count` images, as `fit` would take them.

    >>> [len(step.indices) for step in BatchSchedule(Settings(batch_size=4), count=10, epochs=1)]
    [4, 4, 2]
    """

    def __init__(self, settings: Settings, count: int, epochs: int) -> None:
        self._settings, self._count, self._epochs = settings, count, epochs
        self.sizes = batch_sizes(count, settings.batch_size)

    def __len__(self) -> int:
        return self._epochs * len(self.sizes)

    def __iter__(self) -> Iterator[ScheduledStep]:
        settings, number, size = self._settings, 0, self.sizes[0]
        for epoch in range(self._epochs):
            order = shuffled(self._count, settings.order_seed, epoch)
            for start in range(0, self._count, size):
                indices = order[start : start + size]
                yield ScheduledStep(number, indices, numbers_of(settings, number, len(self.sizes)))
                number += 1

    def specs(self) -> dict[str, Spec]:
        """The shared arrays into which `StepLog` writes."""
        return {name: Spec((len(self),), "float64") for name in ("losses", "seconds")}


class StepLog:
    """The losses and seconds of the steps. One worker writes them for all."""

    def __init__(
        self, group: WorkerGroup, shared: SharedArrays, steps: int, is_writer: bool
    ) -> None:
        self._group, self._steps, self._is_writer = group, steps, is_writer
        self._losses, self._seconds = shared["losses"], shared["seconds"]
        self._step_began = self._last_report = time.perf_counter()

    def add(self, number: int, loss: float) -> None:
        """Record a step that is done, and report progress now and then."""
        if not self._is_writer:
            return
        now = time.perf_counter()
        self._losses[number], self._seconds[number] = loss, now - self._step_began
        if now - self._last_report > REPORT_SECONDS:
            self._group.report(Progress(number + 1, self._steps, loss))
            self._last_report = now
        self._step_began = now
