"""Data-parallel training on a Ray cluster; lost workers are replaced from the last checkpoint.

A worker is an actor with a replica of the network. This process only schedules the steps; gradients
go from worker to worker.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pareo.data import Dataset
from pareo.device import Device
from pareo.errors import PareoError
from pareo.nn.network import Sequential
from pareo.parallel.data.replica import Replica
from pareo.parallel.group.batch_schedule import for_epochs
from pareo.parallel.group.errors import WorkerError, sentence
from pareo.parallel.group.ray_cluster import resources, worker_capacity
from pareo.parallel.group.result import FittedData, check_finite
from pareo.training import checkpoint as files
from pareo.training.checkpoint import Checkpoint
from pareo.training.checks import whole
from pareo.training.evaluate import LEAST_BATCH, Evaluator
from pareo.training.result import Result
from pareo.training.resume import resumed, target
from pareo.training.settings import Settings

STEPS_AHEAD = 16  # steps scheduled at a time, so that workers need not wait for this process
MAX_REPLACEMENTS = 20  # workers that may be lost before a run fails

Watch = Callable[["Run"], Any]


def fit(
    ray: Any,
    network: Sequential,
    data: Dataset,
    settings: Settings,
    epochs: int = 1,
    workers: int = 2,
    device: Device | str = "compiled",
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    watch: Watch = lambda run: None,
) -> Result:
    """Train one network with workers on a Ray cluster, each on its part of every batch.

    The bits of the result depend on the number of workers, but not on where they run, nor on how
    many were lost. Batch normalisation is as in `pareo.parallel.data.fit`: the result has worker
    0's running statistics. If the cluster has no room to replace lost workers, `fit` waits until it
    has.

    Args:
        ray: what `pareo.parallel.group.ray_cluster.connected` gives.
        settings: as for `pareo.training.fit`; `batch_size` is that of all workers together.
        epochs: the number of passes over the data in all.
        device: of each worker; its threads are the CPUs that a worker takes of the cluster.
        checkpoint: as for `pareo.training.fit`; written at the start and after each epoch.
        resume: a checkpoint, or its directory, to continue from.
        watch: called with the `Run` after every few steps.

    Raises:
        PareoError: the cluster has no room for so many workers.
        WorkerError: a worker raised an error, or too many were lost.
        DivergenceError: the loss became NaN or infinite.
    """
    place = Device(device, 1) if isinstance(device, str) else device
    epochs = whole("epochs", epochs, 1)
    settings = for_epochs(settings, epochs)
    FittedData.of(network, data, settings)  # raises an error for data that does not fit
    start = None if resume is None else resumed(resume, network, data, settings)
    file = None if checkpoint is None else target(checkpoint, resume)
    run = Run(ray, network, data, settings, place, workers, file, start)
    try:
        while run.state.epoch < epochs:
            try:
                run.steps()
                watch(run)
            except ray.exceptions.RayError as error:
                run.recover(error)
    finally:
        run.close()
    state = run.state
    return Result(
        network, state.parameters, state.history, place, settings, False, run.file, state.slots
    )


class ReplicaActor:
    """The actor of one rank."""

    def __init__(
        self,
        rank: int,
        workers: int,
        network: Sequential,
        data: Dataset,
        settings: Settings,
        device: Device,
    ) -> None:
        self._arguments = network, data, settings, rank, workers, device

    def restore(self, start: Checkpoint | None) -> None:
        """Go to the state of a checkpoint; None is the beginning."""
        self._replica = Replica(*self._arguments, start)

    def gradients(self) -> Any:
        """This worker's share of the gradients of the next step, for all workers."""
        return self._arguments[-1].backend.to_host(self._replica.gradients())

    def move(self, *vectors: np.ndarray) -> float:
        """Take the step with the sum of all workers' gradients; the loss before it."""
        total = vectors[0].copy()
        for vector in vectors[1:]:
            total += vector
        device = self._arguments[-1]
        with device, device.backend.scope(device):
            total = device.backend.to_device(total)
        return self._replica.move(total)

    def checkpoint(self) -> tuple[int, Checkpoint]:
        """The number of steps of an epoch, and the state of this worker, which all others share."""
        return self._replica.steps, self._replica.checkpoint()

    def test(self) -> tuple[float | None, float | None]:
        """The loss and the accuracy on the test images, or None without them."""
        network, data, settings, _, _, device = self._arguments
        _, _, images, labels = FittedData.of(network, data, settings)
        if not len(images):
            return None, None
        forward = Evaluator(network, device, min(LEAST_BATCH, len(images)), settings.dtype)
        return forward(self._replica.checkpoint().weights, images, labels, settings.loss)


class Run:
    """A run: its workers, and the checkpoint that all of them can go back to.

    state:    the last checkpoint
    ahead:    losses of the steps since then
    replaced: the number of workers that were replaced
    """

    def __init__(
        self,
        ray: Any,
        network: Sequential,
        data: Dataset,
        settings: Settings,
        device: Device,
        workers: int,
        file: Path | None,
        start: Checkpoint | None,
    ) -> None:
        capacity = worker_capacity(ray.cluster_resources(), device)
        if workers > capacity:
            raise PareoError(f"the Ray cluster has room for {capacity} workers; got {workers}")
        self._ray, self.file, self._settings = ray, file, settings
        self._arguments = workers, network, ray.put(data.as_float(settings.dtype)), settings, device
        # Spread over the machines, so that few workers are lost with one of them.
        self._actor = ray.remote(ReplicaActor).options(
            scheduling_strategy="SPREAD", **resources(device)
        )
        self.workers = [self._new(rank) for rank in range(workers)]
        self.ahead: list[float]
        self.replaced = 0
        self._restore(start)
        self.steps_in_epoch, state = ray.get(self.workers[0].checkpoint.remote())
        self._save(state)

    def steps(self) -> None:
        """The next few steps; at the end of an epoch, a test and a checkpoint."""
        left = self.steps_in_epoch - self.state.step - len(self.ahead)
        losses = [self._step() for _ in range(min(STEPS_AHEAD, left))]
        self.ahead += self._ray.get([step[0] for step in losses])
        self._ray.get(losses[-1])  # wait for the others, too, so that their errors are raised here
        check_finite(np.array(self.ahead), self._settings)
        if left == len(losses):
            self._finish()

    def _step(self) -> list[Any]:
        vectors = [worker.gradients.remote() for worker in self.workers]
        return [worker.move.remote(*vectors) for worker in self.workers]

    def _finish(self) -> None:
        """Test, and save the state that all workers have now."""
        first = self.workers[0]
        (loss, accuracy), (_, now) = self._ray.get([first.test.remote(), first.checkpoint.remote()])
        history = self.state.history[:]
        history.add(replace(now.history[-1], accuracy=accuracy, test_loss=loss))
        self._save(replace(now, history=history))

    def _save(self, state: Checkpoint) -> None:
        self.state = state
        self.ahead = []
        if self.file is not None:
            files.write(self.file, state)

    def recover(self, error: BaseException) -> None:
        """Replace lost workers, and let all go back to the checkpoint."""
        before, reason = self.replaced, sentence(getattr(error, "cause", None) or error)
        self._restore(self.state)
        if self.replaced == before:  # no worker was lost, so the error is a worker's own
            raise WorkerError(f"a worker failed: {reason}") from error
        self.ahead = []

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            self._ray.kill(worker)

    def _restore(self, state: Checkpoint | None) -> None:
        """Bring all workers to a checkpoint's state; replace those that do not answer."""
        put = self._ray.put(state)
        waiting = dict(enumerate(self.workers))
        while waiting:
            answers = {rank: worker.restore.remote(put) for rank, worker in waiting.items()}
            waiting = {}
            for rank, answer in answers.items():
                try:
                    self._ray.get(answer)
                except self._ray.exceptions.RayActorError as error:
                    self.replaced += 1
                    if self.replaced > MAX_REPLACEMENTS:
                        reason = sentence(error)[:200]
                        raise WorkerError(f"too many workers were lost: {reason}") from error
                    self._ray.kill(self.workers[rank])  # it may be alive but unreachable
                    self.workers[rank] = waiting[rank] = self._new(rank)

    def _new(self, rank: int) -> Any:
        return self._actor.remote(rank, *self._arguments)
