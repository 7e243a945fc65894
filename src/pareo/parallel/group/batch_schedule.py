"""The course of a run, which all workers follow alike: its batches, their parts, its losses."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from pareo.parallel.group.result import Progress
from pareo.parallel.group.shared_memory import Shared
from pareo.parallel.group.worker_group import Member
from pareo.spec import Spec
from pareo.training.fit import shuffled
from pareo.training.settings import Settings

REPORT_SECONDS = 0.2


def stretch(count: int, rank: int, workers: int) -> tuple[int, int]:
    """A worker's part of `count` things, as even as can be.

    >>> [stretch(5, rank, 2) for rank in range(2)]
    [(0, 2), (2, 5)]
    """
    return count * rank // workers, count * (rank + 1) // workers


def batches(count: int, batch: int) -> list[int]:
    """How large the batches of an epoch are: the last may be smaller.

    >>> batches(10, 4)
    [4, 4, 2]
    """
    size = min(batch, count)
    whole, rest = divmod(count, size)
    return [size] * whole + ([rest] if rest else [])


class Step(NamedTuple):
    """One step: its number from 0, the images that it picks, and the rate."""

    number: int
    chosen: Any
    rate: float


class Course:
    """All steps of a run on so many images, as `fit` would take them.

    >>> [len(step.chosen) for step in Course(Settings(batch_size=4), count=10, epochs=1)]
    [4, 4, 2]
    """

    def __init__(self, settings: Settings, count: int, epochs: int) -> None:
        self._settings, self._count, self._epochs = settings, count, epochs
        self.sizes = batches(count, settings.batch_size)

    def __len__(self) -> int:
        return self._epochs * len(self.sizes)

    def __iter__(self) -> Iterator[Step]:
        settings, number, size = self._settings, 0, self.sizes[0]
        for epoch in range(self._epochs):
            order = shuffled(self._count, settings.order_seed, epoch)
            for start in range(0, self._count, size):
                yield Step(number, order[start : start + size], settings.rate_in(epoch))
                number += 1

    def specs(self) -> dict[str, Spec]:
        """Where losses and seconds of the steps are noted."""
        return {name: Spec((len(self),), "float64") for name in ("losses", "seconds")}


class Notes:
    """The losses and seconds of the steps, written down by one worker for all."""

    def __init__(self, member: Member, shared: Shared, steps: int, writes: bool) -> None:
        self._member, self._steps, self._writes = member, steps, writes
        self._losses, self._seconds = shared["losses"], shared["seconds"]
        self._begun = self._said = time.perf_counter()

    def add(self, number: int, loss: float) -> None:
        """A step is done."""
        if not self._writes:
            return
        now = time.perf_counter()
        self._losses[number], self._seconds[number] = loss, now - self._begun
        if now - self._said > REPORT_SECONDS:
            self._member.report(Progress(number + 1, self._steps, loss))
            self._said = now
        self._begun = now
