"""The result of a training run."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pareo.device import Device
from pareo.errors import RunError
from pareo.nn.network import Sequential
from pareo.training import checkpoint as files
from pareo.training.evaluate import Evaluator, as_inputs
from pareo.training.history import Epoch, History
from pareo.training.losses import BinaryCrossEntropy
from pareo.training.settings import Settings


class DivergenceError(RunError, ArithmeticError):
    """The loss is no longer a number."""


@dataclass
class Result:
    """A trained network: its parameters, and the history of its training.

    parameters:  those after the last step, with the state of layers
    slots:       the arrays of the optimizer, and the moving average if there is one
    interrupted: True if Ctrl-C ended the run early
    checkpoint:  the file to resume from
    """

    network: Sequential
    parameters: dict[str, Any]
    history: History
    device: Device
    settings: Settings
    interrupted: bool = False
    checkpoint: Path | None = None
    slots: dict[str, Any] = field(default_factory=dict)

    @property
    def weights(self) -> dict[str, Any]:
        """What was tested: the moving average of the parameters, or else they themselves."""
        return files.averaged(self.parameters, self.slots)

    @property
    def accuracy(self) -> float | None:
        """The share of the test images that was classified correctly after the last epoch."""
        return self.history[-1].accuracy if self.history else None

    @property
    def best(self) -> Epoch | None:
        """The best epoch; its parameters are in `best.safetensors` beside the checkpoint."""
        return None if self.history.best is None else self.history[self.history.best]

    def predict(self, images: Any) -> Any:
        """The class of each image, by its number; of a network for targets, its outputs.

        For several labels of one image, these are the probabilities that each applies.
        """
        weights = self.weights
        dtype = next(iter(weights.values())).dtype
        inputs = as_inputs(self.network, images, dtype)
        batch = max(1, min(len(inputs), self.settings.batch_size))
        outputs = Evaluator(self.network, self.device, batch, dtype).logits(weights, inputs)
        loss = self.settings.loss
        if loss.takes_classes:
            return outputs.argmax(axis=1)
        if isinstance(loss, BinaryCrossEntropy):
            return 1 / (1 + np.exp(-outputs))
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network and its `weights` to a file that `pareo.load` reads."""
        files.save(path, self.network, self.weights)
