"""One worker of a split by neurons: its shard of every dense layer, on all images of the batch."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pareo.device import Device
from pareo.nn.layers import Context, Parameter
from pareo.nn.network import Sequential
from pareo.parallel.group import sharded_update
from pareo.parallel.group.batch_schedule import (
    BatchSchedule,
    StepLog,
    batch_sizes,
    numbers_of,
    shard,
)
from pareo.parallel.group.forward_backward import ForwardBackward, TracedPart
from pareo.parallel.group.result import Evaluation, FittedData, WorkerTime, evaluation
from pareo.parallel.group.sharded_update import NormExchange
from pareo.parallel.group.shared_memory import DATASET_ARRAYS, SharedArrays
from pareo.parallel.group.worker_group import WorkerGroup
from pareo.parallel.neurons.around import augmentation, loss_program
from pareo.parallel.neurons.segments import SegmentShard, dropouts, segments
from pareo.parallel.pipeline.balance import predicted_cost
from pareo.program import Executable
from pareo.spec import Spec
from pareo.training.recipe import Recipe
from pareo.training.settings import Settings
from pareo.training.step import dropout_seeds, parameter_specs, slot_specs


@dataclass(frozen=True)
class NeuronsJob:
    """What all workers need to know."""

    network: Sequential
    settings: Settings
    device: Device
    epochs: int

    @cached_property
    def recipe(self) -> Recipe:
        """How a step trains the network."""
        return self.settings.recipe

    def shards(self, rank: int, workers: int) -> list[SegmentShard]:
        """A worker's shard of each segment."""
        return [
            SegmentShard(segment, shard(segment.split, rank, workers), rank == 0)
            for segment in segments(self.network, workers)[0]
        ]

    def declared(self, own: SegmentShard) -> dict[str, Parameter]:
        """A shard's parameters, by path."""
        return own.declared(self.network.parameters(self.network.inputs))

    def specs(self, own: SegmentShard) -> dict[str, Spec]:
        """The specs of a shard's parameters, by path."""
        return {path: Spec(p.shape, self.settings.dtype) for path, p in self.declared(own).items()}

    def traced(self, shards: Sequence[SegmentShard], rows: int) -> list[TracedPart]:
        """The programs of a worker's shards."""
        return [
            own.traced(self.specs(own), rows, k > 0, self.recipe.trained(self.declared(own)))
            for k, own in enumerate(shards)
        ]

    def cost(self, rank: int, workers: int, rows: int) -> float:
        """The predicted cost of a worker's step, in FLOPs."""
        parts = self.traced(self.shards(rank, workers), rows)
        return sum(predicted_cost(part.program) for part in parts)


def shared_specs(job: NeuronsJob, workers: int, count: int) -> dict[str, Spec]:
    """The arrays that workers see: parameters, each worker's terms of the sums, and results.

    There are two sets of terms, because a worker may be one step ahead of one that still reads.
    """
    dtype, schedule = job.settings.dtype, BatchSchedule(job.settings, count, job.epochs)
    size = schedule.sizes[0]
    found = {f"p.{path}": spec for path, spec in parameter_specs(job.network, dtype).items()}
    found |= slot_specs(job.network, job.recipe, dtype)
    found |= NormExchange.specs(job.recipe, workers)
    for number, segment in enumerate(segments(job.network, workers)[0]):
        found[f"forward.{number}"] = Spec((2, workers, size, segment.outputs), dtype)
        if number:
            found[f"backward.{number}"] = Spec((2, workers, size, *segment.shape), dtype)
    return found | schedule.specs()


def exchanged_bytes(specs: dict[str, Spec]) -> int:
    """Bytes that workers exchange in a step."""
    terms = [s for name, s in specs.items() if name.startswith(("forward.", "backward."))]
    return sum(spec.nbytes for spec in terms) // 2


class _ShardState:
    """The parameters of one worker's shard of a segment, and the arrays for its update."""

    def __init__(self, job: NeuronsJob, part: TracedPart, own: SegmentShard) -> None:
        self._job = job
        self._slices = own.segment.slices(own.neurons, own.first)
        batch = part.program.specs[part.outputs[0]].shape[0]
        self.layout = part.layout(batch, job.declared(own), job.recipe, job.settings.dtype)
        specs = sharded_update.specs(self.layout, job.recipe, batch)
        self._arrays = {name: np.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}
        self.parameters = sharded_update.by_path(self._arrays.__getitem__, self.layout, "p")

    def tested(self) -> dict[str, np.ndarray]:
        """The parameters to test with."""
        named = self._arrays.__getitem__
        return sharded_update.tested(named, self.layout, self._job.recipe)

    def load(self, shared: SharedArrays) -> None:
        """Copy this shard's slices from shared memory."""
        for shared_slice, array in self._pairs(shared):
            np.copyto(array, shared_slice)

    def store(self, shared: SharedArrays) -> None:
        """Copy this shard's slices to shared memory."""
        for shared_slice, array in self._pairs(shared):
            np.copyto(shared_slice, array)

    def _pairs(self, shared: SharedArrays) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        named = self._arrays.__getitem__
        for kind in sharded_update.kinds(self._job.recipe):
            for path, array in sharded_update.by_path(named, self.layout, kind).items():
                yield shared[f"{kind}.{path}"][self._slices[path]], array

    def targets(self, rows: int, total: np.ndarray) -> list[np.ndarray]:
        """Where the gradients are written."""
        whole = sharded_update.vector_views(total, self.layout).values()
        named = self._arrays.__getitem__
        return [*whole, *sharded_update.factor_rows(named, self.layout, 0, rows)]

    def update(self, batch: int) -> sharded_update.ShardedUpdate:
        """The update of the parameters for batches of one size."""
        job, named = self._job, self._arrays.__getitem__
        return sharded_update.full_update(self.layout, job.recipe, job.device, batch, named)


class NeuronWorker:
    """One worker of a run."""

    def __init__(
        self, group: WorkerGroup, shared: SharedArrays, job: NeuronsJob, data: FittedData | None
    ) -> None:
        self._group, self._shared, self._job = group, shared, job
        self._data = data or FittedData(*[shared[name] for name in DATASET_ARRAYS])
        self._schedule = BatchSchedule(job.settings, len(self._data.images), job.epochs)
        found, after = segments(job.network, group.workers)
        self._after, self._seeds = after, dropouts(found, after)
        self._shards = job.shards(group.rank, group.workers)
        largest = job.traced(self._shards, self._schedule.sizes[0])
        self._states = [
            _ShardState(job, part, own) for part, own in zip(largest, self._shards, strict=True)
        ]
        for state in self._states:
            state.load(shared)
        self._passes = {}
        for size in set(self._schedule.sizes):
            parts = job.traced(self._shards, size)
            self._passes[size] = [
                (ForwardBackward(part, state.layout, job.device), state.update(size))
                for part, state in zip(parts, self._states, strict=True)
            ]
        self._losses = {
            size: loss_program(job.network, job.settings, after, size).compile(job.device)
            for size in self._passes
        }
        augments = job.recipe.augment is not None
        self._augment = {
            size: augmentation(job.network, job.settings, size).compile(job.device)
            for size in (self._passes if augments else ())
        }
        self._norm = NormExchange(group, shared, job.recipe)
        self._communication = 0.0

    def _all_reduce(self, name: str, number: int, size: int) -> np.ndarray:
        """The sum of all workers' terms, in the order of ranks: bitwise the same for all."""
        self._group.barrier()
        begin = time.perf_counter()
        terms = self._shared[name][number % 2, :, :size]
        total = terms[0].copy()
        for term in terms[1:]:
            np.add(total, term, out=total)
        self._communication += time.perf_counter() - begin
        return total

    def step(self, number: int, indices: np.ndarray, numbers: tuple[float, ...]) -> float:
        """One step; the loss before it."""
        size, rank = len(indices), self._group.rank
        count = sum(self._seeds) + self._job.recipe.seeds
        seeds = dropout_seeds(self._job.settings.seed, number, count)
        drawn = [np.asarray(seed, np.int64) for seed in seeds]
        x, flows = self._data.images[indices], []
        if self._augment:
            x = self._augment[size](x, drawn.pop())
        rest = iter(drawn)
        for k, (passes, _) in enumerate(self._passes[size]):
            given = [next(rest) for _ in range(self._seeds[k])]
            inputs = [*self._states[k].parameters.values(), x, *given]
            term = self._shared[f"forward.{k}"][number % 2, rank, :size]
            flows.append((inputs, passes.forward([*inputs, None], [term])))
            x = self._all_reduce(f"forward.{k}", number, size)
        loss, g = self._losses[size](x, self._data.labels[indices], tuple(rest))
        for k in range(len(flows) - 1, -1, -1):
            passes, update = self._passes[size][k]
            inputs, kept = flows[k]
            targets = self._states[k].targets(size, update.total)
            if k:
                targets.append(self._shared[f"backward.{k}"][number % 2, rank, :size])
            passes.backward([*inputs, g], kept, targets)
            if k:
                g = self._all_reduce(f"backward.{k}", number, size)
        norm = self._norm(number, [update for _, update in self._passes[size]])
        if math.isfinite(loss):
            for _, update in self._passes[size]:
                update.step(numbers, norm)
        return float(loss)

    def warm_up(self) -> None:
        """Compile the machine code before time is measured, by a step that is undone."""
        numbers = numbers_of(self._job.settings, 0, len(self._schedule.sizes))
        for size, passes in self._passes.items():
            for _, update in passes:
                update.warm_up(numbers)
            self.step(0, np.zeros(size, np.int64), numbers)
            self._group.barrier()
            for state in self._states:
                state.load(self._shared)
        self._communication = self._group.idle = 0.0

    def train(self) -> WorkerTime:
        """All steps of the run; a loss that is NaN or infinite ends it, for all workers alike."""
        group, begin = self._group, time.perf_counter()
        log = StepLog(group, self._shared, len(self._schedule), group.rank == 0)
        for number, indices, numbers in self._schedule:
            loss = self.step(number, indices, numbers)
            log.add(number, loss)
            if not math.isfinite(loss):
                break
        seconds = time.perf_counter() - begin
        busy = seconds - self._communication - group.idle
        for state in self._states:
            state.store(self._shared)
        return WorkerTime(group.rank, seconds, busy, self._communication, group.idle)

    def test(self) -> Evaluation | None:
        """Test, with as many images at a time as in training."""
        images, labels = self._data.test_images, self._data.test_labels
        if not len(images):
            return None
        chunks = batch_sizes(len(images), self._schedule.sizes[0])
        programs = {
            rows: [
                own.forward(self._job.specs(own), rows).compile(self._job.device)
                for own in self._shards
            ]
            for rows in set(chunks)
        }
        self._group.barrier()  # no worker still reads what is overwritten now
        for rows, runs in programs.items():
            self._forward(runs, images[:rows], 0)
            self._group.barrier()
        begin = time.perf_counter()
        logits = [
            self._forward(programs[rows], images[k * chunks[0] : k * chunks[0] + rows], k)
            for k, rows in enumerate(chunks)
        ]
        seconds = time.perf_counter() - begin
        return evaluation(seconds, np.concatenate(logits), labels, self._job.settings.loss)

    def _forward(self, programs: Sequence[Executable], x: np.ndarray, number: int) -> np.ndarray:
        for k, run in enumerate(programs):
            term = self._shared[f"forward.{k}"][number % 2, self._group.rank, : len(x)]
            np.copyto(term, run(self._states[k].tested(), x))
            x = self._all_reduce(f"forward.{k}", number, len(x))
        for layer in self._after:
            x = layer.apply({}, x, Context())
        return x


def work(
    group: WorkerGroup, shared: SharedArrays, job: NeuronsJob, data: FittedData | None
) -> tuple[WorkerTime, Evaluation | None]:
    """Train and test as one worker."""
    with job.device, job.device.backend.scope(job.device):
        worker = NeuronWorker(group, shared, job, data)
        worker.warm_up()
        return worker.train(), worker.test()
