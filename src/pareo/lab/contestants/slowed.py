"""A contestant that is slowed on purpose: what a race must be able to tell."""

import time
from typing import Any

from pareo.lab.contestants import CONTESTANTS, Contestant, Task, Trainer


def build(task: Task, contestant: str, by: float) -> Trainer:
    """The task as another contestant does it, and then idle for a share of its time."""
    return SlowedTrainer(CONTESTANTS[contestant].build(task), by)


def slowed(contestant: str, by: float = 0.1) -> Contestant:
    """A contestant that takes longer than it needs, by a share of its time.

    >>> slowed("torch").options
    {'contestant': 'torch', 'by': 0.1}
    """
    return Contestant(__name__, {"contestant": contestant, "by": by})


class SlowedTrainer:
    """Another trainer, all of it but its speed."""

    def __init__(self, trainer: Trainer, by: float) -> None:
        self._trainer, self._by = trainer, by

    def run(self, order: Any) -> Any:
        """Train, then wait with open eyes: who sleeps would come back to a slower clock."""
        start = time.perf_counter()
        losses = self._trainer.run(order)
        end = start + (1 + self._by) * (time.perf_counter() - start)
        while time.perf_counter() < end:
            pass
        return losses

    def parameters(self) -> dict[str, Any]:
        """The parameters now."""
        return self._trainer.parameters()

    def load(self, parameters: dict[str, Any]) -> None:
        """Go on from other parameters."""
        self._trainer.load(parameters)
