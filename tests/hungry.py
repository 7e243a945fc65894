"""A contestant that computes nothing and needs 20 MB of memory for each image of a batch."""

from typing import Any

import numpy as np

from pareo.lab.contestants import Task

EACH = 20 * 10**6


class Hungry:
    """Takes its memory anew in each step."""

    def __init__(self, task: Task) -> None:
        self._batch = task.batch

    def run(self, order: Any) -> Any:
        """One array for each step, touched and let go."""
        return [float(np.ones(EACH * self._batch, np.uint8)[0]) for _ in order]


def build(task: Task) -> Hungry:
    """The task, or what is made of it."""
    return Hungry(task)
