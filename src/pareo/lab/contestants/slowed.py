"""A contestant that is slowed on purpose, which a race must be able to detect."""

import time
from collections.abc import Mapping, Sequence
from typing import SupportsFloat

from pareo.lab.contestants import CONTESTANTS, Array, Contestant, Task, Trainer


def build(task: Task, contestant: str, by: float) -> Trainer:
    """The task as another contestant does it, followed by idling for a share of its time."""
    return SlowedTrainer(CONTESTANTS[contestant].build(task), by)


def slowed(contestant: str, by: float = 0.1) -> Contestant:
    """A contestant that takes longer than another, by a share of its time.

    >>> slowed("torch").options
    {'contestant': 'torch', 'by': 0.1}
    """
    return Contestant(__name__, {"contestant": contestant, "by": by})


class SlowedTrainer:
    """Another trainer, but for its speed."""

    def __init__(self, trainer: Trainer, by: float) -> None:
        self._trainer, self._by = trainer, by

    def run(self, order: Array) -> Sequence[SupportsFloat]:
        """Train, then wait in a loop: after a sleep the processor's clock would be slower."""
        start = time.perf_counter()
        losses = self._trainer.run(order)
        end = start + (1 + self._by) * (time.perf_counter() - start)
        while time.perf_counter() < end:
            pass
        return losses

    def parameters(self) -> dict[str, Array]:
        """The parameters now."""
        return self._trainer.parameters()

    def load(self, parameters: Mapping[str, Array]) -> None:
        """Continue from other parameters."""
        self._trainer.load(parameters)
