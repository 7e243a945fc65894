"""The losses and accuracies of a population on the test images."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pareo.device import Device
from pareo.nn.network import Sequential
from pareo.parallel.group.result import evaluation
from pareo.program import Executable, Program, trace
from pareo.program.stack import Value, vmap
from pareo.spec import Spec
from pareo.training.evaluate import Evaluator, evaluation_batch
from pareo.training.losses import CrossEntropy, Loss
from pareo.training.step import parameter_specs

Arrays = Mapping[str, Any]
Score = tuple[float | None, float | None]  # loss and accuracy; None where there is none


class PopulationEvaluator:
    """Tests a population on images that all its members share."""

    def __init__(
        self,
        network: Sequential,
        device: Device,
        batch: int,
        images: np.ndarray,
        loss: Loss = CrossEntropy(),  # noqa: B008  (frozen)
    ) -> None:
        self._network, self._device, self._images = network, device, images
        self._loss = loss
        self._batch = max(
            1, min(evaluation_batch(network, device, batch, images.dtype), len(images))
        )
        self._evaluators: list[Evaluator] = []
        self._program: tuple[int, Executable] | None = None

    def __call__(self, parameters: Arrays, labels: np.ndarray) -> list[Score]:
        """The loss and the accuracy of each member; None without test images."""
        members = len(next(iter(parameters.values())))
        if not len(self._images):
            return [(None, None)] * members
        if self._device.backend.trains_members_separately:
            return self._one_by_one(parameters, labels, members)
        logits = self._logits(parameters, members)
        return [self._score(own, labels) for own in logits]

    def _score(self, outputs: np.ndarray, labels: np.ndarray) -> Score:
        found = evaluation(0.0, outputs, labels, self._loss)
        return found.loss, found.accuracy

    def _one_by_one(self, parameters: Arrays, labels: np.ndarray, members: int) -> list[Score]:
        found: list[Score] = [(None, None)] * members
        one = Device(str(self._device), 1, self._device.precision)
        while len(self._evaluators) < min(self._device.threads, members):
            dtype = self._images.dtype
            self._evaluators.append(Evaluator(self._network, one, self._batch, dtype))

        def test(part: int, start: int, stop: int) -> None:
            for member in range(start, stop):
                own = {path: a[member, ...] for path, a in parameters.items()}
                found[member] = self._evaluators[part](own, self._images, labels, self._loss)

        with self._device:
            self._device.backend.split(test, members)
        return found

    def _logits(self, parameters: Arrays, members: int) -> np.ndarray:
        backend, batch, dtype = self._device.backend, self._batch, self._images.dtype
        if self._program is None or self._program[0] != members:
            self._program = members, self._forward(members).compile(self._device)
        run = self._program[1]
        logits = np.empty((members, len(self._images), self._network.classes), dtype)
        with self._device, backend.scope(self._device):
            for start in range(0, len(self._images), batch):
                piece = self._images[start : start + batch]
                whole = np.zeros((batch, *piece.shape[1:]), dtype)
                whole[: len(piece)] = piece
                out = backend.to_host(run(parameters, backend.to_device(whole)))
                logits[:, start : start + len(piece)] = out[:, : len(piece)]
        return logits

    def _forward(self, members: int) -> Program:
        network, dtype = self._network, self._images.dtype
        many = vmap(network.program(self._batch, dtype), members)
        own = parameter_specs(network, dtype)
        each = {path: spec.like((members, *spec.shape)) for path, spec in own.items()}

        def forward(parameters: Arrays, images: Any) -> Any:
            given = [*map(Value, parameters.values()), Value(images, stacked=False)]
            return many(given)[0].array

        return trace(forward, each, Spec((self._batch, *network.inputs), dtype))
