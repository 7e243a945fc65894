"""pareo itself: the very step that `fit` runs, many of them in one call."""

from typing import Any

import numpy as np

from pareo.device import Device
from pareo.lab.contestants import Task, Trainer
from pareo.training.step import Step


def build(task: Task, device: str, dtype: str = "float32") -> Trainer:
    """The task on one of pareo's devices."""
    return PareoTrainer(task, device, dtype)


class PareoTrainer:
    """The task as a `Step`, which moves its parameters in place."""

    def __init__(self, task: Task, device: str, dtype: str) -> None:
        place = Device(device, threads=task.threads)
        self._step = Step(task.network, task.batch, place, dtype=dtype)
        self._rate = task.rate
        images, self._labels = task.data()
        self._images = images.astype(dtype, copy=False)
        self._parameters = {path: a.astype(dtype) for path, a in task.parameters().items()}

    def run(self, order: Any) -> Any:
        """Train one step for each row of image numbers; the losses."""
        return self._step.run(self._parameters, {}, self._images, self._labels, order, self._rate)

    def load(self, parameters: dict[str, Any]) -> None:
        """Go on from other parameters."""
        for path, a in parameters.items():
            self._parameters[path][...] = a

    def parameters(self) -> dict[str, Any]:
        """The parameters now."""
        return {path: np.array(a) for path, a in self._parameters.items()}
