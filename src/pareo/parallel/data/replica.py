"""Data parallelism where workers share no memory: each has all parameters, and an all-reduce.

    replica = Replica(network, data, settings, rank, workers, device)
    for _ in range(steps):
        loss = replica.move(all_reduce.reduce(replica.gradients()))

Every worker moves its own parameters by the same sum, so that all of them stay the same, bit by
bit. A worker that was lost is made anew from any other's `checkpoint`, and goes on with the step
that it was lost in.
"""

import math
import time
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from pareo.data import Dataset
from pareo.device import Device
from pareo.nn.network import Sequential
from pareo.parallel.data.worker import Job, Rows
from pareo.parallel.group.batch_schedule import batches, stretch
from pareo.parallel.group.result import Data
from pareo.parallel.group.sharded_update import whole
from pareo.parallel.group.shared_memory import Shared
from pareo.parallel.group.shared_programs import dropout_widths, layout, seeds_from, update_program
from pareo.parallel.group.worker_group import Member
from pareo.spec import Spec
from pareo.training.checkpoint import Checkpoint
from pareo.training.fit import shuffled
from pareo.training.history import Epoch, History
from pareo.training.resume import identity
from pareo.training.settings import Settings
from pareo.training.step import dropout_seeds, step_program


class AllReduce(Protocol):
    """How workers add up their gradients."""

    def reduce(self, gradients: Any) -> Any:
        """The sum of everyone's vector, taken in a fixed order: the same bits for all."""


class Replica:
    """A worker with parameters of its own.

    Args:
        settings: `batch_size` is that of all workers together.
        rank, workers: which rows of each batch are its own.
        start: a checkpoint to go on from, any worker's; None is the beginning.

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
        self._data = Data.of(network, data, settings.dtype)
        self._sizes = batches(len(self._data.images), settings.batch_size)
        self._job = Job(
            network, settings, place, layout(network, self._sizes[0], settings.dtype, True)
        )
        self._rank, self._workers = rank, workers
        self._widths = dropout_widths(network)
        self.state = Checkpoint(
            network, network.initialise(settings.seed, settings.dtype),
            settings=settings.plain(), data={} if start else identity(data),
            place={"device": str(place), "threads": place.threads},
        )  # fmt: skip
        if start is not None:  # a copy: others may start from it, too
            history, partial = History(start.history), dict(start.partial)
            self.state = replace(start, history=history, partial=partial)
        length = self._job.layout.length
        backend = place.backend
        with place, backend.scope(place):
            self._moved = [backend.to_device(a) for a in self._vectors()]
            self._parameters = self._seen(self._moved[0])
            self._images = backend.place_dataset(self._data.images)
            self._labels = backend.place_dataset(self._data.labels)
            # One more than there are gradients: the share of the loss travels along.
            self._shown = backend.to_device(np.zeros(length + 1, settings.dtype))
        self._rows: dict[int, tuple[Rows, Any, Any]] = {}
        update = update_program(self._job.layout, length, {}, self._sizes[0], settings)
        self._update = update.compile(place, {k: k for k in range(len(self._moved))})
        self._flops = step_program(network, self._sizes[0]).flops / self._sizes[0]
        self._begun = 0.0

    @property
    def steps(self) -> int:
        """How many steps an epoch has."""
        return len(self._sizes)

    def gradients(self) -> Any:
        """This worker's share of the next step's gradients; the last element is the loss's."""
        self._begun = time.perf_counter()
        state, settings, place = self.state, self._job.settings, self._job.device
        size = self._sizes[state.step]
        order = shuffled(len(self._data.images), settings.order_seed, state.epoch)
        lo, hi = between = stretch(size, self._rank, self._workers)
        first = state.step * self._sizes[0]
        mine = order[first + lo : first + hi]
        number = state.epoch * self.steps + state.step
        seeds = seeds_from(
            dropout_seeds(settings.seed, number, len(self._widths)), self._widths, lo
        )
        with place, place.backend.scope(place):
            rows, images, labels = self._on(size, between)
            self._pick(images, self._images, mine)
            self._pick(labels, self._labels, mine)
            share = rows(self._parameters, images, labels, seeds)
            self._shown[-1:] = share
        return self._shown

    def _on(self, size: int, between: tuple[int, int]) -> tuple[Rows, Any, Any]:
        """The program for this worker's rows of a batch, and room for them that stays in place."""
        if size not in self._rows:
            count, dtype = between[1] - between[0], self._job.layout.dtype
            backend = self._job.device.backend
            images = backend.empty(Spec((count, *self._job.network.inputs), dtype))
            labels = backend.empty(Spec((count,), "int64"))
            rows = Rows(self._job, size, between, self._shown[:-1], ())
            self._rows[size] = rows, images, labels
        return self._rows[size]

    def _pick(self, room: Any, held: Any, chosen: Any) -> None:
        """Some images, or labels, from where they are held into their room on the device."""
        backend = self._job.device.backend
        if backend.is_local(held):
            backend.copy(room, held[backend.to_device(chosen)])
        else:
            backend.copy(room, backend.to_device(held[chosen]))

    def move(self, total: Any) -> float:
        """Move the parameters by the sum of all workers' gradients; the loss before that."""
        state, settings, place = self.state, self._job.settings, self._job.device
        with place, place.backend.scope(place):
            loss = float(place.backend.to_host(total[-1:])[0])
            if math.isfinite(loss):
                parameters, velocities = ([{"": a} for a in self._moved] + [{}])[:2]
                rate = np.dtype(settings.dtype).type(settings.rate_in(state.epoch))
                self._update(parameters, velocities, total[:-1], {}, {}, rate)
        state.partial["loss"] += loss * self._sizes[state.step]
        state.partial["seconds"] += time.perf_counter() - self._begun
        state.step += 1
        if state.step == self.steps:
            self._finish()
        return loss

    def _finish(self) -> None:
        """Remember the epoch, and stand before the next."""
        state, count = self.state, len(self._data.images)
        seconds, loss = state.partial["seconds"], state.partial["loss"] / count
        speed = count / seconds
        state.history.add(
            Epoch(state.epoch + 1, seconds, loss, None, None, speed, speed * self._flops, None)
        )
        state.epoch, state.step = state.epoch + 1, 0
        state.partial = {"loss": 0.0, "seconds": 0.0}

    def checkpoint(self) -> Checkpoint:
        """Where this worker stands; `pareo.training.checkpoint.write` keeps it."""
        place = self._job.device
        with place, place.backend.scope(place):
            homes = [self._seen(place.backend.to_host(a).copy()) for a in self._moved]
        self.state.parameters, self.state.velocities = (*homes, {})[:2]
        return self.state

    def _seen(self, vector: Any) -> dict[str, Any]:
        return whole(vector, self._job.layout)

    def _vectors(self) -> list[Any]:
        """The parameters, and with momentum the velocities, each as one vector."""
        given = [self.state.parameters]
        if self._job.settings.momentum:
            given.append(self.state.velocities)
        found = []
        for arrays in given:
            vector = np.zeros(self._job.layout.length, self._job.layout.dtype)
            for path, target in self._seen(vector).items():
                target[...] = arrays.get(path, 0)
            found.append(vector)
        return found


class ReduceInMemory:
    """An all-reduce for a crew: the plainest there is, for tests and to be held against others."""

    def __init__(self, member: Member, shared: Shared) -> None:
        self._member, self._shown = member, shared["shown"]

    def reduce(self, gradients: Any) -> Any:
        """The sum of everyone's vector, in the order of ranks."""
        self._shown[self._member.rank] = gradients
        self._member.meet()
        total = self._shown[0].copy()
        with np.errstate(all="ignore"):  # a loss that is no number is told by the loss
            for other in self._shown[1:]:
                total += other
        self._member.meet()
        return total

    @staticmethod
    def specs(network: Sequential, settings: Settings, workers: int) -> dict[str, Spec]:
        """The arrays that the crew must share."""
        length = layout(network, 1, settings.dtype, whole=True).length
        return {"shown": Spec((workers, length + 1), settings.dtype)}


def train(replica: Replica, all_reduce: AllReduce, epochs: int) -> list[float]:
    """Take a replica from where it stands to the end of so many epochs; its losses on the way."""
    losses = []
    while replica.state.epoch < epochs:
        losses.append(replica.move(all_reduce.reduce(replica.gradients())))
        if not math.isfinite(losses[-1]):
            break
    return losses
