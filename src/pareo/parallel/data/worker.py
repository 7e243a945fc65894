"""One worker of data-parallel training: its rows of each batch, its shard of the update.

All workers see one set of parameters. A step has two halves, with a barrier after each. First, each
worker runs its rows forward and backward and writes its gradients. Then, each worker adds all
workers' gradients of its own shard of the parameters, in the order of ranks, and updates the shard.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo.device import Device
from pareo.nn.network import Sequential
from pareo.parallel.group import sharded_update
from pareo.parallel.group.batch_schedule import BatchSchedule, StepLog, shard
from pareo.parallel.group.result import FittedData, WorkerTime
from pareo.parallel.group.sharded_update import vector_views
from pareo.parallel.group.shared_memory import DATASET_ARRAYS, SharedArrays
from pareo.parallel.group.shared_programs import (
    GradientLayout,
    argument_updates,
    dropout_widths,
    exchanged_values,
    gradient_program,
    seeds_from_row,
    writing_into_arguments,
)
from pareo.parallel.group.worker_group import WorkerGroup
from pareo.program import Executable
from pareo.spec import Spec
from pareo.training.evaluate import LEAST_BATCH, Evaluator
from pareo.training.settings import Settings
from pareo.training.step import dropout_seeds


@dataclass(frozen=True)
class DataJob:
    """What all workers need to know: the run, and how gradients are exchanged."""

    network: Sequential
    settings: Settings
    device: Device
    layout: GradientLayout
    epochs: int = 1


class RowGradients:
    """Computes the gradients of one worker's rows of a batch, for batches of one size.

    vector:  where the gradients that are exchanged whole are written
    factors: where this worker's rows of the factors are written: inputs, then output gradients
    """

    def __init__(
        self,
        job: DataJob,
        batch: int,
        rows: tuple[int, int],
        vector: Any,
        factors: Sequence[np.ndarray],
    ) -> None:
        self.rows, self._vector = rows, vector
        self._targets = [*vector_views(vector, job.layout).values(), *factors]
        self._to_host = job.device.backend.to_host
        self._run: Executable | None = None
        count = rows[1] - rows[0]
        if count:
            program = gradient_program(job.network, count, batch, job.layout.dtype)
            gradients = dict(zip(job.layout.paths, program.outputs[1:], strict=True))
            written = exchanged_values(program, gradients, job.layout)
            program = writing_into_arguments(program, program.outputs[:1], written)
            self._run = program.compile(job.device, argument_updates(program, len(written)))

    def __call__(self, parameters: Any, images: Any, labels: Any, seeds: Sequence[int]) -> float:
        """Write the gradients of these rows; return their share of the loss."""
        if self._run is None:  # more workers than images
            self._vector[:] = 0
            return 0.0
        seed_arrays = tuple(np.asarray(seed, np.int64) for seed in seeds)
        results = self._run(parameters, images, labels, seed_arrays, self._targets)
        return float(self._to_host(results[0]))


def shared_specs(job: DataJob, workers: int, count: int) -> dict[str, Spec]:
    """The arrays that all workers see."""
    layout = job.layout
    schedule = BatchSchedule(job.settings, count, job.epochs)
    found = sharded_update.specs(layout, job.settings.momentum, schedule.sizes[0])
    found["g"] = Spec((workers, layout.length), layout.dtype)
    found["shares"] = Spec((workers,), "float64")
    return found | schedule.specs()


class DataWorker:
    """One worker of a data-parallel run, which also measures where its time goes."""

    def __init__(
        self, group: WorkerGroup, shared: SharedArrays, job: DataJob, data: FittedData | None
    ) -> None:
        self._group, self._shared, self._job = group, shared, job
        self._data = data or FittedData(*[shared[name] for name in DATASET_ARRAYS])
        self._parameters = sharded_update.by_path(shared.__getitem__, job.layout, "p")
        self._widths = dropout_widths(job.network)
        self._schedule = BatchSchedule(job.settings, len(self._data.images), job.epochs)
        self._own = shard(job.layout.length, group.rank, group.workers)
        sizes = set(self._schedule.sizes)
        self._gradients_of = {size: self._row_gradients(size) for size in sizes}
        self._updates = {size: self._sharded_update(size) for size in sizes}
        most = max(g.rows[1] - g.rows[0] for g in self._gradients_of.values())
        self._images = np.empty_like(self._data.images, shape=(most, *job.network.inputs))
        self._warm_up()
        self._busy = self._communication = group.idle = 0.0

    def _row_gradients(self, size: int) -> RowGradients:
        shared, rank = self._shared, self._group.rank
        lo, hi = rows = shard(size, rank, self._group.workers)
        factors = sharded_update.factor_rows(shared.__getitem__, self._job.layout, lo, hi)
        return RowGradients(self._job, size, rows, shared["g"][rank], factors)

    def _sharded_update(self, size: int) -> sharded_update.ShardedUpdate:
        job, rank, workers = self._job, self._group.rank, self._group.workers
        rows = {
            path: shard(spec.shape[0], rank, workers) for path, spec in job.layout.factored.items()
        }
        return sharded_update.ShardedUpdate(
            job.layout, job.settings, job.device, size, self._shared.__getitem__, self._own, rows
        )

    def _sum_gradients(self, total: np.ndarray) -> None:
        """Add all workers' whole gradients of this worker's shard, in the order of ranks."""
        first, *others = self._shared["g"][:, slice(*self._own)]
        np.copyto(total, first)
        for other in others:
            np.add(total, other, out=total)

    def _warm_up(self) -> None:
        """Compile the machine code before time is measured."""
        for size, update in self._updates.items():
            self._gradients(np.zeros(size, np.int64), [0] * len(self._widths))
            update.warm_up()
        self._group.barrier()

    def _gradients(self, indices: np.ndarray, seeds: list[int]) -> float:
        """Write the gradients of this worker's rows; return their share of the loss."""
        compute = self._gradients_of[len(indices)]
        own = indices[slice(*compute.rows)]
        images = self._images[: len(own)]
        np.take(self._data.images, own, axis=0, out=images, mode="clip")
        seeds = seeds_from_row(seeds, self._widths, compute.rows[0])
        return compute(self._parameters, images, self._data.labels[own], seeds)

    def _step(self, number: int, indices: np.ndarray, rate: float) -> float:
        """One step; the loss before it. Without an update if the loss is NaN or infinite."""
        update, shares = self._updates[len(indices)], self._shared["shares"]
        seeds = dropout_seeds(self._job.settings.seed, number, len(self._widths))
        begin = time.perf_counter()
        shares[self._group.rank] = self._gradients(indices, seeds)
        self._busy += time.perf_counter() - begin
        self._group.barrier()
        loss = math.fsum(shares)
        begin = time.perf_counter()
        self._sum_gradients(update.total)
        middle = time.perf_counter()
        if math.isfinite(loss):
            update.step(rate)
        self._communication += middle - begin
        self._busy += time.perf_counter() - middle
        self._group.barrier()
        return loss

    def train(self) -> WorkerTime:
        """All steps of the run; a loss that is NaN or infinite ends it, for all workers alike."""
        group, begin = self._group, time.perf_counter()
        log = StepLog(group, self._shared, len(self._schedule), group.rank == 0)
        for number, indices, rate in self._schedule:
            loss = self._step(number, indices, rate)
            log.add(number, loss)
            if not math.isfinite(loss):
                break
        seconds = time.perf_counter() - begin
        return WorkerTime(group.rank, seconds, self._busy, self._communication, group.idle)

    def test(self) -> tuple[float, float, float]:
        """Of this worker's part of the test set: seconds, sum of losses, correct answers."""
        images, labels = self._data.test_images, self._data.test_labels
        lo, hi = shard(len(images), self._group.rank, self._group.workers)
        if hi > lo:
            batch, dtype = min(LEAST_BATCH, hi - lo), self._job.layout.dtype
            forward = Evaluator(self._job.network, self._job.device, batch, dtype)
            forward.logits(self._parameters, images[lo : lo + 1])
        self._group.barrier()
        if hi == lo:
            return 0.0, 0.0, 0.0
        begin = time.perf_counter()
        loss, correct = forward(self._parameters, images[lo:hi], labels[lo:hi])
        return time.perf_counter() - begin, loss * (hi - lo), correct * (hi - lo)


def work(
    group: WorkerGroup, shared: SharedArrays, job: DataJob, data: FittedData | None
) -> tuple[WorkerTime, tuple[float, float, float]]:
    """Train and test as one worker; without `data`, it is read from shared memory."""
    with job.device, job.device.backend.scope(job.device):
        worker = DataWorker(group, shared, job, data)
        return worker.train(), worker.test()
