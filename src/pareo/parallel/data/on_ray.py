"""Data-parallel training on a Ray cluster: a worker that is lost is replaced from the checkpoint.

A worker is an actor with a replica of the network. This process only says what is to be done next;
gradients go from worker to worker.
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
from pareo.parallel.group.ray_cluster import needs, room
from pareo.parallel.group.result import Data, check_finite
from pareo.parallel.group.worker_group import WorkerError
from pareo.parallel.trials.trial import sentence
from pareo.training import checkpoint as files
from pareo.training.checkpoint import Checkpoint
from pareo.training.evaluate import LEAST_BATCH, Evaluator
from pareo.training.fit import Result
from pareo.training.resume import resumed, target
from pareo.training.settings import Settings, whole

AHEAD = 16  # steps that are told to the workers at once: they need not wait for us in between
MENDINGS = 20  # so many workers may be lost before a run gives up

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

    The bits depend on the number of workers, not on where they run, nor on how many were lost.
    Where machines are lost and nobody takes their place, it waits until the cluster has room again.

    Args:
        ray: what `pareo.parallel.group.ray_cluster.connected` gives.
        settings: as for `pareo.training.fit`; `batch_size` is that of all workers together.
        epochs: how many passes over the data in all.
        device: of each worker; its threads are the CPUs that a worker asks the cluster for.
        checkpoint: as for `pareo.training.fit`; written at the start and after each epoch.
        resume: a checkpoint, or its folder, to go on from.
        watch: called with the `Run` after every few steps.

    Raises:
        PareoError: the cluster has no room for so many workers.
        WorkerError: a worker failed by itself, or too many were lost.
        DivergenceError: the loss became NaN or infinite.
    """
    place = Device(device, 1) if isinstance(device, str) else device
    epochs = whole("epochs", epochs, 1)
    start = None if resume is None else resumed(resume, network, data, settings)
    file = None if checkpoint is None else target(checkpoint, resume)
    run = Run(ray, network, data, settings, place, workers, file, start)
    try:
        while run.state.epoch < epochs:
            try:
                run.steps()
                watch(run)
            except ray.exceptions.RayError as error:
                run.mend(error)
    finally:
        run.close()
    state = run.state
    return Result(
        network, state.parameters, state.history, place, settings, False, run.file, state.velocities
    )


class Worker:
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
        """Stand where a checkpoint stands; None is the beginning."""
        self._replica = Replica(*self._arguments, start)

    def gradients(self) -> Any:
        """This worker's share of the gradients of the next step, for all to fetch."""
        return self._arguments[-1].backend.to_host(self._replica.gradients())

    def move(self, *shown: Any) -> float:
        """Take the step by everyone's gradients, added in the order of ranks; the loss before."""
        total = shown[0].copy()
        for vector in shown[1:]:
            total += vector
        device = self._arguments[-1]
        with device, device.backend.scope(device):
            total = device.backend.to_device(total)
        return self._replica.move(total)

    def checkpoint(self) -> tuple[int, Checkpoint]:
        """How many steps an epoch has, and where this worker stands, and with it all others."""
        return self._replica.steps, self._replica.checkpoint()

    def test(self) -> tuple[float, float] | tuple[None, None]:
        """The loss and the accuracy on the test images, if there are any."""
        network, data, settings, _, _, device = self._arguments
        if not len(data.test_images):
            return None, None
        _, _, images, labels = Data.of(network, data, settings.dtype)
        forward = Evaluator(network, device, min(LEAST_BATCH, len(images)), settings.dtype)
        return forward(self._replica.checkpoint().parameters, images, labels)


class Run:
    """A run under way: its workers, and the checkpoint that all of them can go back to.

    state:  the last checkpoint
    ahead:  losses of the steps since then
    mended: how many workers were replaced
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
        places = room(ray.cluster_resources(), device)
        if workers > places:
            raise PareoError(f"the Ray cluster has room for {places} workers; got {workers}")
        self._ray, self.file, self._settings = ray, file, settings
        self._arguments = workers, network, ray.put(data.as_float(settings.dtype)), settings, device
        # On as many machines as there are, so that one of them takes few workers with it.
        self._actor = ray.remote(Worker).options(scheduling_strategy="SPREAD", **needs(device))
        self.workers = [self._new(rank) for rank in range(workers)]
        self.ahead: list[float]
        self.mended = 0
        self._restore(start)
        self.steps_in_epoch, state = ray.get(self.workers[0].checkpoint.remote())
        self._keep(state)

    def steps(self) -> None:
        """The next few steps; at the end of an epoch, a test and a checkpoint."""
        left = self.steps_in_epoch - self.state.step - len(self.ahead)
        losses = [self._step() for _ in range(min(AHEAD, left))]
        self.ahead += self._ray.get([step[0] for step in losses])
        self._ray.get(losses[-1])  # of the others, too: a failure there must not go unnoticed
        check_finite(np.array(self.ahead), self._settings)
        if left == len(losses):
            self._finish()

    def _step(self) -> list[Any]:
        shown = [worker.gradients.remote() for worker in self.workers]
        return [worker.move.remote(*shown) for worker in self.workers]

    def _finish(self) -> None:
        """Test, and keep what all workers have now."""
        first = self.workers[0]
        (loss, right), (_, now) = self._ray.get([first.test.remote(), first.checkpoint.remote()])
        history = self.state.history[:]
        history.add(replace(now.history[-1], accuracy=right, test_loss=loss))
        self._keep(replace(now, history=history))

    def _keep(self, state: Checkpoint) -> None:
        self.state = state
        self.ahead = []
        if self.file is not None:
            files.write(self.file, state)

    def mend(self, error: BaseException) -> None:
        """Replace the workers that are lost; all go back to the checkpoint."""
        before, why = self.mended, sentence(getattr(error, "cause", None) or error)
        self._restore(self.state)
        if self.mended == before:  # everyone is here: then it was none of the cluster's faults
            raise WorkerError(f"a worker failed: {why}") from error
        self.ahead = []

    def close(self) -> None:
        """Let the workers go."""
        for worker in self.workers:
            self._ray.kill(worker)

    def _restore(self, state: Checkpoint | None) -> None:
        """All workers where a checkpoint stands; those that do not answer are replaced."""
        put = self._ray.put(state)
        waiting = dict(enumerate(self.workers))
        while waiting:
            told = {rank: worker.restore.remote(put) for rank, worker in waiting.items()}
            waiting = {}
            for rank, answer in told.items():
                try:
                    self._ray.get(answer)
                except self._ray.exceptions.RayActorError as error:
                    self.mended += 1
                    if self.mended > MENDINGS:
                        why = sentence(error)[:200]
                        raise WorkerError(f"too many workers were lost: {why}") from error
                    self._ray.kill(self.workers[rank])  # it may only be out of reach
                    self.workers[rank] = waiting[rank] = self._new(rank)

    def _new(self, rank: int) -> Any:
        return self._actor.remote(rank, *self._arguments)
