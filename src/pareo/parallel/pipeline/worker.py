"""One worker of a pipeline: a stage of the network, through which micro-batches flow.

The schedule is "one forward, one backward". A stage first runs as many micro-batches forward as
there are stages from its own on, and then alternates between backward and forward. So no stage
keeps more micro-batches than there are stages. No stage waits for the updates of others: after its
own update it continues with the next batch; where gradients are clipped, it waits until all stages
know their norm.

Batch normalisation uses the statistics of each micro-batch, and moves its running statistics with
each of them, in their order, as in PyTorch's pipelines.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pareo.device import Device
from pareo.nn.network import Sequential
from pareo.parallel.group import sharded_update
from pareo.parallel.group.batch_schedule import (
    BatchSchedule,
    StepLog,
    batch_sizes,
    numbers_of,
    shard,
)
from pareo.parallel.group.forward_backward import ForwardBackward
from pareo.parallel.group.result import (
    Evaluation,
    FittedData,
    WorkerTime,
    diverged,
    evaluation,
)
from pareo.parallel.group.sharded_update import NormExchange
from pareo.parallel.group.shared_memory import DATASET_ARRAYS, SharedArrays
from pareo.parallel.group.shared_programs import (
    GradientLayout,
    drawn_widths,
    replaced_state,
    seeds_from_row,
    whole_weight,
)
from pareo.parallel.group.worker_group import WorkerGroup
from pareo.parallel.pipeline.stages import Stage, schedule, trace_stage
from pareo.spec import Spec
from pareo.training.recipe import Recipe
from pareo.training.settings import Settings
from pareo.training.step import dropout_seeds


@dataclass(frozen=True)
class PipelineJob:
    """What all workers need to know."""

    network: Sequential
    stages: Sequence[Stage]
    layouts: Sequence[GradientLayout]
    settings: Settings
    device: Device
    epochs: int
    micro: int

    @cached_property
    def recipe(self) -> Recipe:
        """How a step trains the network."""
        return self.settings.recipe


def shared_specs(job: PipelineJob, count: int) -> dict[str, Spec]:
    """The arrays that workers see: parameters, activations and gradients at the cuts, results."""
    batches = BatchSchedule(job.settings, count, job.epochs)
    size = batches.sizes[0]
    found: dict[str, Spec] = batches.specs()
    for stage, layout in zip(job.stages, job.layouts, strict=True):
        own = sharded_update.specs(layout, job.recipe, size)
        found |= {f"{stage.number}.{name}": spec for name, spec in own.items()}
        if stage.number:
            cut = Spec((size, *stage.network.inputs), layout.dtype)
            found |= {f"forward.{stage.number}": cut, f"backward.{stage.number}": cut}
    found |= NormExchange.specs(job.recipe, len(job.stages))
    return {**found, "shares": Spec((len(job.stages), len(batches)), "float64")}


@dataclass
class _MicroBatch:
    """A micro-batch in a stage: its rows of the batch, its inputs, and what is kept of it."""

    rows: tuple[int, int]
    inputs: list[np.ndarray]
    slot: int
    kept: Sequence[np.ndarray] = ()
    loss: float = 0.0


class PipelineWorker:
    """The worker of one stage."""

    def __init__(
        self, group: WorkerGroup, shared: SharedArrays, job: PipelineJob, data: FittedData | None
    ) -> None:
        self._group, self._shared, self._job = group, shared, job
        self._data = data or FittedData(*[shared[name] for name in DATASET_ARRAYS])
        self._stage, self._layout = job.stages[group.rank], job.layouts[group.rank]
        self._named = lambda name: shared[f"{group.rank}.{name}"]
        parameters = sharded_update.by_path(self._named, self._layout, "p")
        self._parameters = list(parameters.values())
        state = replaced_state(self._stage.network, job.recipe)
        self._state = [parameters[path] for path in state]
        widths = drawn_widths(job.network, job.recipe)
        self._all_seeds = len(widths)
        self._widths = [widths[k] for k in self._stage.seeds]
        self._norm = NormExchange(group, shared, job.recipe)
        self._batches = BatchSchedule(job.settings, len(self._data.images), job.epochs)
        self._sizes = set(self._batches.sizes)
        self._slots = min(job.micro, self._stage.stages - self._stage.number)
        self._passes: dict[tuple[int, int], ForwardBackward] = {}
        self._updates = {
            size: sharded_update.full_update(
                self._layout, job.recipe, job.device, size, self._named
            )
            for size in self._sizes
        }
        self._gradients = np.zeros(self._layout.length, self._layout.dtype)
        self._loss = np.zeros((), self._layout.dtype)
        self._busy = 0.0

    def _passes_for(self, flow: _MicroBatch, batch: int) -> ForwardBackward:
        """The programs for a micro-batch of a batch of this size."""
        rows = flow.rows[1] - flow.rows[0]
        if (rows, batch) not in self._passes:
            job, dtype = self._job, self._layout.dtype
            part = trace_stage(self._stage, rows, batch, dtype, job.recipe, job.network.classes)
            device = self._job.device
            self._passes[rows, batch] = ForwardBackward(part, self._layout, device, self._slots)
        return self._passes[rows, batch]

    def _inputs(
        self, rows: tuple[int, int], indices: np.ndarray, seeds: list[int]
    ) -> list[np.ndarray]:
        """What a micro-batch reads, in the order of the traced program's inputs."""
        lo, hi = rows
        rank, shared, own = self._group.rank, self._shared, indices[lo:hi]
        x = shared[f"forward.{rank}"][lo:hi] if rank else self._data.images[own]
        numbers = [np.asarray(seed, np.int64) for seed in seeds_from_row(seeds, self._widths, lo)]
        arriving = [] if self._stage.is_last else [shared[f"backward.{rank + 1}"][lo:hi]]
        labels = self._data.labels
        whole = whole_weight(self._job.recipe, labels, indices, self._layout.dtype)
        return [*self._parameters, x, labels[own], *whole, *numbers, *arriving]

    def _micro_batches(self, indices: np.ndarray, seeds: list[int]) -> list[_MicroBatch]:
        size, micro = len(indices), min(self._job.micro, len(indices))
        all_rows = [shard(size, m, micro) for m in range(micro)]
        return [
            _MicroBatch(rows, self._inputs(rows, indices, seeds), m % self._slots)
            for m, rows in enumerate(all_rows)
        ]

    def _forward(self, flow: _MicroBatch, batch: int) -> None:
        lo, hi = flow.rows
        last = self._stage.is_last
        reads = flow.inputs if last else [*flow.inputs[:-1], None]
        outputs = [] if last else [self._shared[f"forward.{self._group.rank + 1}"][lo:hi]]
        losses = [self._loss] if self._stage.has_loss else []
        passes = self._passes_for(flow, batch)
        flow.kept = passes.forward(reads, [*outputs, *losses], flow.slot)
        flow.loss = float(self._loss)

    def _backward(self, flow: _MicroBatch, batch: int) -> None:
        lo, hi = flow.rows
        whole = sharded_update.vector_views(self._gradients, self._layout).values()
        factors = sharded_update.factor_rows(self._named, self._layout, lo, hi)
        rank = self._group.rank
        before = [self._shared[f"backward.{rank}"][lo:hi]] if rank else []
        passes = self._passes_for(flow, batch)
        passes.backward(flow.inputs, flow.kept, [*whole, *factors, *before])

    def step(self, number: int, indices: np.ndarray, numbers: tuple[float, ...]) -> float:
        """One step of this stage; its share of the loss."""
        size, group, rank, last = len(indices), self._group, self._group.rank, self._stage.is_last
        drawn = dropout_seeds(self._job.settings.seed, number, self._all_seeds)
        seeds = [drawn[k] for k in self._stage.seeds]
        begin, idle_before = time.perf_counter(), group.idle
        flows, update = self._micro_batches(indices, seeds), self._updates[size]
        for direction, m in schedule(rank, self._stage.stages, len(flows)):
            if direction == "forward":
                if rank:
                    group.wait_for(rank - 1)
                self._forward(flows[m], size)
                if not last:
                    group.signal(rank + 1)
                continue
            if not last:
                group.wait_for(rank + 1)
            self._backward(flows[m], size)
            if rank:
                group.signal(rank - 1)
            np.add(update.total if m else 0, self._gradients, out=update.total)
        loss = sum(flow.loss for flow in flows)
        norm = self._norm(number, [update])
        if math.isfinite(loss):
            update.step(numbers, norm)
        self._busy += time.perf_counter() - begin - (group.idle - idle_before)
        return loss

    def warm_up(self) -> None:
        """Compile the machine code before time is measured."""
        kept = [array.copy() for array in self._state]
        numbers = numbers_of(self._job.settings, 0, len(self._batches.sizes))
        for size in self._sizes:
            for flow in self._micro_batches(np.zeros(size, np.int64), [0] * len(self._widths)):
                self._forward(flow, size)
                self._backward(flow, size)
            self._updates[size].warm_up(numbers)
        for array, before in zip(self._state, kept, strict=True):
            np.copyto(array, before)
        self._group.barrier()
        self._group.idle = 0.0

    def train(self) -> WorkerTime:
        """All steps of the run."""
        group, begin = self._group, time.perf_counter()
        log = StepLog(group, self._shared, len(self._batches), self._stage.is_last)
        for number, indices, numbers in self._batches:
            loss = self.step(number, indices, numbers)
            if not math.isfinite(loss):
                raise diverged(loss, number + 1, self._job.settings)
            self._shared["shares"][group.rank, number] = loss
            log.add(number, loss)
        seconds = time.perf_counter() - begin
        return WorkerTime(group.rank, seconds, self._busy, 0.0, group.idle)

    def test(self) -> Evaluation | None:
        """Test half a batch at a time: a stage fills one half while the next reads the other.

        Only the last stage returns the result.
        """
        images, rank, group = self._data.test_images, self._group.rank, self._group
        if not len(images):
            return None
        size = self._batches.sizes[0]
        halves = 2 if size > 1 else 1
        chunks = batch_sizes(len(images), size // halves)
        programs = {
            rows: self._stage.network.program(rows, self._layout.dtype).compile(self._job.device)
            for rows in set(chunks)
        }
        parameters = sharded_update.tested(self._named, self._layout, self._job.recipe)
        for rows, run in programs.items():
            run(parameters, np.zeros((rows, *self._stage.network.inputs), self._layout.dtype))
        group.barrier()
        begin, logits = time.perf_counter(), []
        for number, rows in enumerate(chunks):
            half = slice(number % halves * chunks[0], number % halves * chunks[0] + rows)
            if rank:
                group.wait_for(rank - 1)
                x = self._shared[f"forward.{rank}"][half]
            else:
                x = images[number * chunks[0] : number * chunks[0] + rows]
            y = programs[rows](parameters, x)
            if rank:
                group.signal(rank - 1)  # this half may be filled again
            if self._stage.is_last:
                logits.append(y.copy())
                continue
            if number >= halves:
                group.wait_for(rank + 1)
            np.copyto(self._shared[f"forward.{rank + 1}"][half], y)
            group.signal(rank + 1)
        seconds = time.perf_counter() - begin
        if not self._stage.is_last:
            return None
        outputs, loss = np.concatenate(logits), self._job.settings.loss
        return evaluation(seconds, outputs, self._data.test_labels, loss)


def work(
    group: WorkerGroup, shared: SharedArrays, job: PipelineJob, data: FittedData | None
) -> tuple[WorkerTime, Evaluation | None]:
    """Train and test as the worker of one stage."""
    with job.device, job.device.backend.scope(job.device):
        worker = PipelineWorker(group, shared, job, data)
        worker.warm_up()
        return worker.train(), worker.test()
