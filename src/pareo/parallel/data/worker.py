"""One worker of data-parallel training: its rows of each batch, its shard of the update.

All workers see one set of parameters. A step has two halves, with a barrier after each. First, each
worker runs its rows forward and backward and writes its gradients. Then, each worker adds all
workers' gradients of its own shard of the parameters, in the order of ranks, and updates the shard.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pareo.device import Device
from pareo.nn.network import Sequential
from pareo.parallel.data.synchronised import SumExchange, synchronised
from pareo.parallel.group import sharded_update
from pareo.parallel.group.batch_schedule import BatchSchedule, StepLog, numbers_of, shard
from pareo.parallel.group.result import FittedData, WorkerTime
from pareo.parallel.group.sharded_update import NormExchange, vector_views
from pareo.parallel.group.shared_memory import DATASET_ARRAYS, SharedArrays
from pareo.parallel.group.shared_programs import (
    GradientLayout,
    argument_updates,
    drawn_widths,
    exchanged_values,
    gradient_program,
    replaced_state,
    seeds_from_row,
    whole_weight,
    writing_into_arguments,
)
from pareo.parallel.group.worker_group import WorkerGroup
from pareo.program import Executable
from pareo.spec import Spec
from pareo.training.evaluate import LEAST_BATCH, Evaluator
from pareo.training.recipe import Recipe
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
    synchronise: bool = False

    @cached_property
    def recipe(self) -> Recipe:
        """How a step trains the network."""
        return self.settings.recipe


class RowGradients:
    """Computes the gradients of one worker's rows of a batch, for batches of one size.

    vector:  where the gradients that are exchanged whole are written
    factors: where this worker's rows of the factors are written: inputs, then output gradients
    exchange: how workers normalise by the statistics of the whole batch; None is each by its own
    """

    def __init__(
        self,
        job: DataJob,
        batch: int,
        rows: tuple[int, int],
        vector: Any,
        factors: Sequence[np.ndarray],
        exchange: SumExchange | None = None,
    ) -> None:
        self.rows, self._vector = rows, vector
        self._targets = [*vector_views(vector, job.layout).values(), *factors]
        self._to_host = job.device.backend.to_host
        self._run: Executable | None = None
        count = rows[1] - rows[0]
        if count:
            layout, recipe = job.layout, job.recipe
            program = gradient_program(job.network, count, batch, layout.dtype, recipe)
            trained = len(layout.trained)
            gradients = dict(zip(layout.trained, program.outputs[1 : 1 + trained], strict=True))
            written = exchanged_values(program, gradients, layout)
            state = program.outputs[1 + trained :]
            program = writing_into_arguments(program, (program.outputs[0], *state), written)
            if exchange is not None:
                program = synchronised(program, count, batch, exchange)
            updates = argument_updates(program, len(written))
            for result, path in enumerate(replaced_state(job.network, recipe), start=1):
                updates[result] = layout.paths.index(path)
            self._run = program.compile(job.device, updates)

    def __call__(
        self, parameters: Any, images: Any, labels: Any, whole: Sequence[Any], seeds: Sequence[int]
    ) -> float:
        """Write the gradients of these rows; return their share of the loss.

        The state of layers, which is among the parameters, is replaced. `whole` is as for
        `gradient_program`.
        """
        if self._run is None:  # more workers than images
            self._vector[:] = 0
            return 0.0
        seed_arrays = tuple(np.asarray(seed, np.int64) for seed in seeds)
        given = tuple(whole)
        results = self._run(parameters, images, labels, given, seed_arrays, self._targets)
        return float(self._to_host(results[0]))


def shared_specs(job: DataJob, workers: int, count: int) -> dict[str, Spec]:
    """The arrays that all workers see."""
    layout = job.layout
    schedule = BatchSchedule(job.settings, count, job.epochs)
    found = sharded_update.specs(layout, job.recipe, schedule.sizes[0])
    found |= NormExchange.specs(job.recipe, workers)
    found |= SumExchange.specs(job.network, workers) if job.synchronise else {}
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
        # The state in shared memory is that of the first worker.
        state = replaced_state(job.network, job.recipe)
        self._state = {path: self._parameters[path] for path in state}
        if group.rank:
            self._state = {path: array.copy() for path, array in self._state.items()}
            self._parameters |= self._state
        self._widths = drawn_widths(job.network, job.recipe)
        self._norm = NormExchange(group, shared, job.recipe)
        self._exchange = SumExchange(group, shared) if job.synchronise else None
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
        return RowGradients(self._job, size, rows, shared["g"][rank], factors, self._exchange)

    def _sharded_update(self, size: int) -> sharded_update.ShardedUpdate:
        job, rank, workers = self._job, self._group.rank, self._group.workers
        rows = {
            path: shard(spec.shape[0], rank, workers) for path, spec in job.layout.factored.items()
        }
        named = self._shared.__getitem__
        return sharded_update.ShardedUpdate(
            job.layout, job.recipe, job.device, size, named, self._own, rows, keeps=rank == 0
        )

    def _sum_gradients(self, total: np.ndarray) -> None:
        """Add all workers' whole gradients of this worker's shard, in the order of ranks."""
        first, *others = self._shared["g"][:, slice(*self._own)]
        np.copyto(total, first)
        for other in others:
            np.add(total, other, out=total)

    def _warm_up(self) -> None:
        """Compile the machine code before time is measured."""
        self._group.barrier()  # all workers have copied the state, which the first changes now
        kept = {path: array.copy() for path, array in self._state.items()}
        numbers = numbers_of(self._job.settings, 0, len(self._schedule.sizes))
        for size, update in self._updates.items():
            self._gradients(np.zeros(size, np.int64), [0] * len(self._widths))
            update.warm_up(numbers)
        for path, array in kept.items():
            np.copyto(self._state[path], array)
        self._group.barrier()

    def _gradients(self, indices: np.ndarray, seeds: list[int]) -> float:
        """Write the gradients of this worker's rows; return their share of the loss."""
        compute = self._gradients_of[len(indices)]
        own = indices[slice(*compute.rows)]
        images = self._images[: len(own)]
        np.take(self._data.images, own, axis=0, out=images, mode="clip")
        seeds = seeds_from_row(seeds, self._widths, compute.rows[0])
        labels = self._data.labels
        whole = whole_weight(self._job.recipe, labels, indices, self._job.layout.dtype)
        return compute(self._parameters, images, labels[own], whole, seeds)

    def _step(self, number: int, indices: np.ndarray, numbers: tuple[float, ...]) -> float:
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
        norm = self._norm(number, [update])
        if math.isfinite(loss):
            update.step(numbers, norm)
        self._communication += middle - begin
        self._busy += time.perf_counter() - middle
        self._group.barrier()
        return loss

    def train(self) -> WorkerTime:
        """All steps of the run; a loss that is NaN or infinite ends it, for all workers alike."""
        group, begin = self._group, time.perf_counter()
        log = StepLog(group, self._shared, len(self._schedule), group.rank == 0)
        for number, indices, numbers in self._schedule:
            loss = self._step(number, indices, numbers)
            log.add(number, loss)
            if not math.isfinite(loss):
                break
        seconds = time.perf_counter() - begin
        return WorkerTime(group.rank, seconds, self._busy, self._communication, group.idle)

    def test(self) -> tuple[float, float, float]:
        """Of this worker's part of the test set: seconds, sum of losses, correct answers.

        For targets, which are not right or wrong, the last is NaN.
        """
        images, labels = self._data.test_images, self._data.test_labels
        lo, hi = shard(len(images), self._group.rank, self._group.workers)
        if hi > lo:
            batch, dtype = min(LEAST_BATCH, hi - lo), self._job.layout.dtype
            forward = Evaluator(self._job.network, self._job.device, batch, dtype)
            weights = sharded_update.tested(
                self._shared.__getitem__, self._job.layout, self._job.recipe
            )
            forward.logits(weights, images[lo : lo + 1])
        self._group.barrier()
        if hi == lo:
            return 0.0, 0.0, 0.0
        begin = time.perf_counter()
        kind = self._job.settings.loss
        loss, right = forward(weights, images[lo:hi], labels[lo:hi], kind)
        correct = math.nan if right is None else right * (hi - lo)
        return time.perf_counter() - begin, loss * (hi - lo), correct


def work(
    group: WorkerGroup, shared: SharedArrays, job: DataJob, data: FittedData | None
) -> tuple[WorkerTime, tuple[float, float, float]]:
    """Train and test as one worker; without `data`, it is read from shared memory."""
    with job.device, job.device.backend.scope(job.device):
        worker = DataWorker(group, shared, job, data)
        return worker.train(), worker.test()
