"""Data parallelism where workers share no memory: each has all parameters, and an all-reduce.

    replica = Replica(network, data, settings, rank, workers, device)
    for _ in range(steps):
        loss = replica.move(all_reduce.reduce(replica.gradients()))

Every worker updates its own parameters by the same sum, so that all copies stay bitwise the same.
A lost worker is created again from any other's `checkpoint`, and continues with the step in which
it was lost. The state of layers, such as running statistics, is each worker's own: it is that of
its rows, and is in its `checkpoint`.
"""

import math
import time
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from pareo.data import Dataset
from pareo.device import Device
from pareo.nn.network import Sequential
from pareo.parallel.data.worker import DataJob, RowGradients
from pareo.parallel.group.batch_schedule import batch_sizes, numbers_of, shard
from pareo.parallel.group.result import FittedData
from pareo.parallel.group.sharded_update import by_path, full_update, slots_by_path, specs
from pareo.parallel.group.shared_memory import SharedArrays
from pareo.parallel.group.shared_programs import (
    drawn_widths,
    gradient_layout,
    seeds_from_row,
    whole_weight,
)
from pareo.parallel.group.worker_group import WorkerGroup
from pareo.spec import Spec
from pareo.training.checkpoint import Checkpoint
from pareo.training.fit import shuffled
from pareo.training.history import Epoch, History
from pareo.training.resume import identity
from pareo.training.settings import Settings
from pareo.training.step import dropout_seeds, new_slots, step_program


class AllReduce(Protocol):
    """How workers add up their gradients."""

    def reduce(self, gradients: Any) -> Any:
        """The sum of all workers' vectors, in a fixed order: bitwise the same for all."""


class Replica:
    """A worker with its own copy of the parameters.

    Args:
        settings: `batch_size` is that of all workers together.
        rank, workers: which determine this worker's rows of each batch.
        start: a checkpoint of any worker to continue from; None starts from the beginning.

    Example:
        >>> from pareo.data import load
        >>> from pareo.nn import networks
        >>> data = load("synthetic:16:3:120")
        >>> pair = [Replica(networks.mlp([16, 3]), data, Settings(), rank, 2) for rank in (0, 1)]
        >>> total = sum(replica.gradients() for replica in pair)
        >>> losses = [replica.move(total) for replica in pair]
        >>> losses[0] == losses[1]
        True
    """

    def __init__(
        self,
        network: Sequential,
        data: Dataset,
        settings: Settings,
        rank: int,
        workers: int,
        device: Device | str = "compiled",
        start: Checkpoint | None = None,
    ) -> None:
        place = Device(device, 1) if isinstance(device, str) else device
        recipe = settings.recipe
        self._data = FittedData.of(network, data, settings)
        self._sizes = batch_sizes(len(self._data.images), settings.batch_size)
        layout = gradient_layout(network, self._sizes[0], settings.dtype, True, recipe)
        self._job = DataJob(network, settings, place, layout)
        self._rank, self._workers = rank, workers
        self._widths = drawn_widths(network, recipe)
        parameters = network.initialise(settings.seed, settings.dtype)
        self.state = Checkpoint(
            network, parameters, new_slots(network, recipe, parameters),
            settings=settings.plain(), data={} if start else identity(data),
            place={"device": str(place), "threads": place.threads},
        )  # fmt: skip
        if start is not None:  # a copy: others may start from it, too
            history, partial = History(start.history), dict(start.partial)
            self.state = replace(start, history=history, partial=partial)
        backend = place.backend
        with place, backend.scope(place):
            self._arrays = {
                name: backend.to_device(a) for name, a in self._initial_arrays().items()
            }
            self._parameters = by_path(self._arrays.__getitem__, layout, "p")
            self._images = backend.place_dataset(self._data.images)
            self._labels = backend.place_dataset(self._data.labels)
            # The last element is this worker's share of the loss.
            self._gradients = backend.to_device(np.zeros(layout.length + 1, settings.dtype))
        self._rows: dict[int, tuple[RowGradients, Any, Any]] = {}
        named = self._arrays.__getitem__
        with place, backend.scope(place):
            self._update = full_update(layout, recipe, place, self._sizes[0], named)
        self._flops = step_program(network, self._sizes[0], recipe).flops / self._sizes[0]
        self._step_began = 0.0

    @property
    def steps(self) -> int:
        """The number of steps of an epoch."""
        return len(self._sizes)

    def gradients(self) -> Any:
        """This worker's share of the next step's gradients; the last element is the loss."""
        self._step_began = time.perf_counter()
        state, settings, place = self.state, self._job.settings, self._job.device
        size = self._sizes[state.step]
        order = shuffled(len(self._data.images), settings.order_seed, state.epoch)
        lo, hi = rows = shard(size, self._rank, self._workers)
        first = state.step * self._sizes[0]
        own = order[first + lo : first + hi]
        number = state.epoch * self.steps + state.step
        seeds = seeds_from_row(
            dropout_seeds(settings.seed, number, len(self._widths)), self._widths, lo
        )
        with place, place.backend.scope(place):
            compute, images, labels = self._for_rows(size, rows)
            self._gather(images, self._images, own)
            self._gather(labels, self._labels, own)
            batch = order[first : first + size]
            whole = whole_weight(self._job.recipe, self._data.labels, batch, settings.dtype)
            self._gradients[-1:] = compute(self._parameters, images, labels, whole, seeds)
        return self._gradients

    def _for_rows(self, size: int, rows: tuple[int, int]) -> tuple[RowGradients, Any, Any]:
        """The program for this worker's rows of a batch, and buffers for images and labels."""
        if size not in self._rows:
            count, dtype = rows[1] - rows[0], self._job.layout.dtype
            backend = self._job.device.backend
            images = backend.empty(Spec((count, *self._job.network.inputs), dtype))
            targets = self._job.recipe.loss.targets(count, self._job.network.classes, dtype)
            labels = backend.empty(targets)
            compute = RowGradients(self._job, size, rows, self._gradients[:-1], ())
            self._rows[size] = compute, images, labels
        return self._rows[size]

    def _gather(self, buffer: Any, held: Any, indices: np.ndarray) -> None:
        """Copy some images, or labels, from where they are held into a buffer on the device."""
        backend = self._job.device.backend
        if backend.is_local(held):
            backend.copy(buffer, held[backend.to_device(indices)])
        else:
            backend.copy(buffer, backend.to_device(held[indices]))

    def move(self, total: Any) -> float:
        """Update the parameters by the sum of all workers' gradients; return the loss before."""
        state, settings, place = self.state, self._job.settings, self._job.device
        with place, place.backend.scope(place):
            loss = float(place.backend.to_host(total[-1:])[0])
            if math.isfinite(loss):
                number = state.epoch * self.steps + state.step
                norm = self._update.norm(total[:-1])
                numbers = numbers_of(settings, number, self.steps)
                self._update.step(numbers, norm, total[:-1])
        state.partial["loss"] += loss * self._sizes[state.step]
        state.partial["seconds"] += time.perf_counter() - self._step_began
        state.step += 1
        if state.step == self.steps:
            self._finish()
        return loss

    def _finish(self) -> None:
        """Record the epoch and begin the next."""
        state, count = self.state, len(self._data.images)
        seconds, loss = state.partial["seconds"], state.partial["loss"] / count
        speed = count / seconds
        state.history.add(
            Epoch(state.epoch + 1, seconds, loss, None, None, speed, speed * self._flops, None)
        )
        state.epoch, state.step = state.epoch + 1, 0
        state.partial = {"loss": 0.0, "seconds": 0.0}

    def checkpoint(self) -> Checkpoint:
        """This worker's state, which `pareo.training.checkpoint.write` saves."""
        place = self._job.device
        with place, place.backend.scope(place):
            held = {name: place.backend.to_host(a).copy() for name, a in self._arrays.items()}
        layout, recipe = self._job.layout, self._job.recipe
        self.state.parameters = by_path(held.__getitem__, layout, "p")
        self.state.slots = slots_by_path(held.__getitem__, layout, recipe)
        return self.state

    def _initial_arrays(self) -> dict[str, np.ndarray]:
        """The parameters and the slots, as `parallel.group.sharded_update` names them."""
        layout, recipe = self._job.layout, self._job.recipe
        wanted = specs(layout, recipe, self._sizes[0])
        found = {name: np.zeros(spec.shape, spec.dtype) for name, spec in wanted.items()}
        for path, target in by_path(found.__getitem__, layout, "p").items():
            target[...] = self.state.parameters[path]
        for name, target in slots_by_path(found.__getitem__, layout, recipe).items():
            target[...] = self.state.slots[name]
        return found


class SharedMemoryReduce:
    """An all-reduce through shared memory: the simplest, for tests and comparisons."""

    def __init__(self, group: WorkerGroup, shared: SharedArrays) -> None:
        self._group, self._vectors = group, shared["vectors"]

    def reduce(self, gradients: np.ndarray) -> np.ndarray:
        """The sum of all workers' vectors, in the order of ranks."""
        self._vectors[self._group.rank] = gradients
        self._group.barrier()
        total = self._vectors[0].copy()
        with np.errstate(all="ignore"):  # NaN and infinities show in the loss
            for other in self._vectors[1:]:
                total += other
        self._group.barrier()
        return total

    @staticmethod
    def specs(network: Sequential, settings: Settings, workers: int) -> dict[str, Spec]:
        """The arrays that the workers must share."""
        batch = min(2, settings.batch_size)  # batch normalisation needs two images
        layout = gradient_layout(network, batch, settings.dtype, True, settings.recipe)
        return {"vectors": Spec((workers, layout.length + 1), settings.dtype)}


def train(replica: Replica, all_reduce: AllReduce, epochs: int) -> list[float]:
    """Train a replica from its current state until so many epochs are complete; its losses."""
    losses = []
    while replica.state.epoch < epochs:
        losses.append(replica.move(all_reduce.reduce(replica.gradients())))
        if not math.isfinite(losses[-1]):
            break
    return losses
