"""One worker of data-parallel training: its rows of each batch, its stretch of the update.

All see one set of parameters. In a step each worker runs its rows forward and back and shows its
gradients; they meet; each adds up everyone's gradients for its own stretch of the parameters, in
the order of ranks, and moves that stretch; they meet again.
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
from pareo.parallel.group.batch_schedule import Course, Notes, stretch
from pareo.parallel.group.result import Data, Share
from pareo.parallel.group.sharded_update import whole
from pareo.parallel.group.shared_memory import PARTS, Shared
from pareo.parallel.group.shared_programs import (
    Layout,
    dropout_widths,
    gradient_program,
    seeds_from,
    shown,
    updates,
    writing,
)
from pareo.parallel.group.worker_group import Member
from pareo.spec import Spec
from pareo.training.evaluate import LEAST_BATCH, Evaluator
from pareo.training.settings import Settings
from pareo.training.step import dropout_seeds


@dataclass(frozen=True)
class Job:
    """What all workers are told: the run, and how its gradients travel."""

    network: Sequential
    settings: Settings
    device: Device
    layout: Layout
    epochs: int = 1


class Rows:
    """One worker's rows of batches of one size: their gradients, written where they are wanted.

    vector: for the gradients that travel whole
    factors: for what comes into factored layers, then for their errors, rows of this worker alone
    """

    def __init__(
        self, job: Job, batch: int, between: tuple[int, int], vector: Any, factors: Sequence[Any]
    ) -> None:
        self.between, self._vector = between, vector
        self._targets = [*whole(vector, job.layout).values(), *factors]
        self._home = job.device.backend.to_host
        self._run: Any = None
        rows = between[1] - between[0]
        if rows:
            program = gradient_program(job.network, rows, batch, job.layout.dtype)
            gradients = dict(zip(job.layout.paths, program.outputs[1:], strict=True))
            left = shown(program, gradients, job.layout)
            program = writing(program, program.outputs[:1], left)
            self._run = program.compile(job.device, updates(program, len(left)))

    def __call__(self, parameters: Any, images: Any, labels: Any, seeds: Any) -> float:
        """Write the gradients of these rows; their share of the loss."""
        if self._run is None:  # more workers than images
            self._vector[:] = 0
            return 0.0
        numbers = tuple(np.asarray(seed, np.int64) for seed in seeds)
        results = self._run(parameters, images, labels, numbers, self._targets)
        return float(self._home(results[0]))


def specs(job: Job, workers: int, count: int) -> dict[str, Spec]:
    """The arrays that all workers see."""
    layout = job.layout
    course = Course(job.settings, count, job.epochs)
    found = sharded_update.specs(layout, job.settings.momentum, course.sizes[0])
    found["g"] = Spec((workers, layout.length), layout.dtype)
    found["shares"] = Spec((workers,), "float64")
    return found | course.specs()


class DataWorker:
    """One worker of a data-parallel run, with where its seconds went."""

    def __init__(self, member: Member, shared: Shared, job: Job, data: Data | None) -> None:
        self._member, self._shared, self._job = member, shared, job
        self._data = data or Data(*[shared[part] for part in PARTS])
        self._parameters = sharded_update.by_path(shared.__getitem__, job.layout, "p")
        self._widths = dropout_widths(job.network)
        self._course = Course(job.settings, len(self._data.images), job.epochs)
        self._sizes = set(self._course.sizes)
        self._rows = {size: self._rows_of(size) for size in self._sizes}
        self._moves = {size: self._descent_of(size) for size in self._sizes}
        self._images = np.empty_like(self._data.images, shape=(self._most(), *job.network.inputs))
        self._warm()
        self._busy = self._communication = member.idle = 0.0

    def _rows_of(self, size: int) -> Rows:
        shared, rank = self._shared, self._member.rank
        lo, hi = between = stretch(size, rank, self._member.workers)
        factors = sharded_update.rows_of(shared.__getitem__, self._job.layout, lo, hi)
        return Rows(self._job, size, between, shared["g"][rank], factors)

    def _descent_of(self, size: int) -> sharded_update.Descent:
        """This worker's stretch of the parameters."""
        job, rank, workers = self._job, self._member.rank, self._member.workers
        self._mine = stretch(job.layout.length, rank, workers)
        rows = {
            path: stretch(spec.shape[0], rank, workers) for path, spec in job.layout.factors.items()
        }
        return sharded_update.Descent(
            job.layout, job.settings, job.device, size, self._shared.__getitem__, self._mine, rows
        )

    def _add_up(self, total: Any) -> None:
        """Everyone's whole gradients of this worker's stretch, in the order of ranks."""
        first, *others = self._shared["g"][:, slice(*self._mine)]
        np.copyto(total, first)
        for other in others:
            np.add(total, other, out=total)

    def _most(self) -> int:
        return max(rows.between[1] - rows.between[0] for rows in self._rows.values())

    def _warm(self) -> None:
        """Compile machine code before the clock runs."""
        for size in self._rows:
            self._gradients(np.zeros(size, np.int64), [0] * len(self._widths))
            self._moves[size].warm()
        self._member.meet()

    def _gradients(self, chosen: Any, seeds: list[int]) -> float:
        """Show the gradients of this worker's rows; their share of the loss."""
        rows = self._rows[len(chosen)]
        mine = chosen[slice(*rows.between)]
        images = self._images[: len(mine)]
        np.take(self._data.images, mine, axis=0, out=images, mode="clip")
        seeds = seeds_from(seeds, self._widths, rows.between[0])
        return rows(self._parameters, images, self._data.labels[mine], seeds)

    def _step(self, number: int, chosen: Any, rate: float) -> float:
        """One step on some images; the loss before it. Nothing moves where that is no number."""
        move, shares = self._moves[len(chosen)], self._shared["shares"]
        seeds = dropout_seeds(self._job.settings.seed, number, len(self._widths))
        begin = time.perf_counter()
        shares[self._member.rank] = self._gradients(chosen, seeds)
        self._busy += time.perf_counter() - begin
        self._member.meet()
        loss = math.fsum(shares)
        begin = time.perf_counter()
        self._add_up(move.total)
        middle = time.perf_counter()
        if math.isfinite(loss):
            move.move(rate)
        self._communication += middle - begin
        self._busy += time.perf_counter() - middle
        self._member.meet()
        return loss

    def train(self) -> Share:
        """All steps of the run; a loss that is no number is the last, for all workers alike."""
        member, begin = self._member, time.perf_counter()
        notes = Notes(member, self._shared, len(self._course), member.rank == 0)
        for number, chosen, rate in self._course:
            loss = self._step(number, chosen, rate)
            notes.add(number, loss)
            if not math.isfinite(loss):
                break
        spent = time.perf_counter() - begin
        return Share(member.rank, spent, self._busy, self._communication, member.idle)

    def test(self) -> tuple[float, float, float]:
        """Seconds for this worker's part of the test set, the sum of losses, how many are right."""
        images, labels = self._data.test_images, self._data.test_labels
        lo, hi = stretch(len(images), self._member.rank, self._member.workers)
        if hi > lo:
            batch, dtype = min(LEAST_BATCH, hi - lo), self._job.layout.dtype
            forward = Evaluator(self._job.network, self._job.device, batch, dtype)
            forward.logits(self._parameters, images[lo : lo + 1])
        self._member.meet()
        if hi == lo:
            return 0.0, 0.0, 0.0
        begin = time.perf_counter()
        loss, right = forward(self._parameters, images[lo:hi], labels[lo:hi])
        return time.perf_counter() - begin, loss * (hi - lo), right * (hi - lo)


def work(member: Member, shared: Shared, job: Job, data: Data | None) -> Any:
    """A worker from its start to its end; processes see the data in shared memory alone."""
    with job.device, job.device.backend.scope(job.device):
        worker = DataWorker(member, shared, job, data)
        return worker.train(), worker.test()
