"""One worker of a pipeline: a stretch of the layers, through which micro-batches flow.

Every worker first lets as many micro-batches through as there are stages from its own on, then goes
back with one for each that it lets through: one forward, one back. So no stage keeps more of them
than there are stages. Nobody waits for the others' updates: a stage that has moved its parameters
goes on with the next batch.
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
from pareo.parallel.group.batch_schedule import Course, Notes, batches, stretch
from pareo.parallel.group.result import Data, Scored, Share
from pareo.parallel.group.shared_memory import PARTS, Shared
from pareo.parallel.group.shared_programs import Layout, dropout_widths, seeds_from
from pareo.parallel.group.worker_group import Member
from pareo.parallel.pipeline.parts import Part, schedule, traced_part
from pareo.parallel.pipeline.stage import Stage
from pareo.spec import Spec
from pareo.training.evaluate import score
from pareo.training.fit import DivergenceError
from pareo.training.settings import Settings
from pareo.training.step import dropout_seeds


@dataclass(frozen=True)
class Job:
    """What all workers are told."""

    network: Sequential
    parts: Sequence[Part]
    layouts: Sequence[Layout]
    settings: Settings
    device: Device
    epochs: int
    micro: int


def shared_specs(job: Job, count: int) -> dict[str, Spec]:
    """The arrays that workers see: what goes on and what comes back at each cut, the results."""
    course = Course(job.settings, count, job.epochs)
    sizes = course.sizes
    found: dict[str, Spec] = course.specs()
    for part, layout in zip(job.parts, job.layouts, strict=True):
        own = sharded_update.specs(layout, job.settings.momentum, sizes[0])
        found |= {f"{part.number}.{name}": spec for name, spec in own.items()}
        if part.number:
            at = Spec((sizes[0], *part.network.inputs), layout.dtype)
            found |= {f"on.{part.number}": at, f"back.{part.number}": at}
    return {**found, "shares": Spec((len(job.parts), len(course)), "float64")}


class PipelineWorker:
    """One stage under way."""

    def __init__(self, member: Member, shared: Shared, job: Job, data: Data | None) -> None:
        self._member, self._shared, self._job = member, shared, job
        self._data = data or Data(*[shared[part] for part in PARTS])
        self._part, self._layout = job.parts[member.rank], job.layouts[member.rank]
        self._named = lambda name: shared[f"{member.rank}.{name}"]
        self._parameters = list(sharded_update.by_path(self._named, self._layout, "p").values())
        first = self._part.first_seed
        self._all_seeds = job.network.seeds()
        self._mine = slice(first, first + self._part.network.seeds())
        self._widths = dropout_widths(job.network)[self._mine]
        self._course = Course(job.settings, len(self._data.images), job.epochs)
        self._sizes = set(self._course.sizes)
        self._stages: dict[tuple[int, int], Stage] = {}
        self._moves = {size: self._descent(size) for size in self._sizes}
        self._shown = np.zeros(self._layout.length, self._layout.dtype)
        self._loss = np.zeros((), self._layout.dtype)
        self._busy = 0.0

    def _descent(self, size: int) -> sharded_update.Descent:
        rows = {path: (0, spec.shape[0]) for path, spec in self._layout.factors.items()}
        return sharded_update.Descent(
            self._layout, self._job.settings, self._job.device, size, self._named,
            (0, self._layout.length), rows,
        )  # fmt: skip

    def _stage(self, rows: int, batch: int) -> Stage:
        if (rows, batch) not in self._stages:
            piece = traced_part(self._part, rows, batch, self._layout.dtype)
            self._stages[rows, batch] = Stage(piece, self._layout, self._job.device, self._slots())
        return self._stages[rows, batch]

    def _inputs(self, rows: tuple[int, int], chosen: Any, seeds: Any) -> list[Any]:
        """What a micro-batch reads, in the order of the traced program."""
        lo, hi = rows
        rank, shared, mine = self._member.rank, self._shared, chosen[lo:hi]
        x = shared[f"on.{rank}"][lo:hi] if rank else self._data.images[mine]
        numbers = [np.asarray(seed, np.int64) for seed in seeds_from(seeds, self._widths, lo)]
        arriving = [] if self._part.last else [shared[f"back.{rank + 1}"][lo:hi]]
        return [*self._parameters, x, self._data.labels[mine], *numbers, *arriving]

    def _forward(self, stage: Stage, flow: "_Flow") -> None:
        lo, hi = flow.rows
        reads = flow.inputs if self._part.last else [*flow.inputs[:-1], None]
        on = [] if self._part.last else [self._shared[f"on.{self._member.rank + 1}"][lo:hi]]
        losses = [self._loss] if self._part.has_loss else []
        flow.kept = stage.forward(reads, [*on, *losses], flow.slot)
        flow.loss = float(self._loss) * (hi - lo)

    def _back(self, stage: Stage, flow: "_Flow") -> None:
        lo, hi = flow.rows
        whole = sharded_update.whole(self._shown, self._layout).values()
        factors = sharded_update.rows_of(self._named, self._layout, lo, hi)
        rank = self._member.rank
        before = [self._shared[f"back.{rank}"][lo:hi]] if rank else []
        stage.backward(flow.inputs, flow.kept, [*whole, *factors, *before])

    def _flows(self, chosen: Any, seeds: list[int]) -> list["_Flow"]:
        size, micro = len(chosen), min(self._job.micro, len(chosen))
        rows = [stretch(size, m, micro) for m in range(micro)]
        slots = self._slots()
        return [
            _Flow(part, self._inputs(part, chosen, seeds), m % slots) for m, part in enumerate(rows)
        ]

    def _slots(self) -> int:
        return min(self._job.micro, self._part.stages - self._part.number)

    def step(self, number: int, chosen: Any, rate: float) -> float:
        """One step of this stage; its share of the loss."""
        size, rank, member = len(chosen), self._member.rank, self._member
        seeds = dropout_seeds(self._job.settings.seed, number, self._all_seeds)[self._mine]
        begin, waited = time.perf_counter(), member.idle
        flows, move = self._flows(chosen, seeds), self._moves[size]
        for way, m in schedule(rank, self._part.stages, len(flows)):
            flow = flows[m]
            stage = self._stage(flow.rows[1] - flow.rows[0], size)
            if way == "forward":
                if rank:
                    member.hear(rank - 1)
                self._forward(stage, flow)
                if not self._part.last:
                    member.tell(rank + 1)
                continue
            if not self._part.last:
                member.hear(rank + 1)
            self._back(stage, flow)
            if rank:
                member.tell(rank - 1)
            np.add(move.total if m else 0, self._shown, out=move.total)
        loss = sum(flow.loss for flow in flows) / size
        if math.isfinite(loss):
            move.move(rate)
        self._busy += time.perf_counter() - begin - (member.idle - waited)
        return loss

    def warm(self) -> None:
        """Compile machine code before the clock runs."""
        for size in self._sizes:
            for flow in self._flows(np.zeros(size, np.int64), [0] * len(self._widths)):
                stage = self._stage(flow.rows[1] - flow.rows[0], size)
                self._forward(stage, flow)
                self._back(stage, flow)
            self._moves[size].warm()
        self._member.meet()
        self._member.idle = 0.0

    def train(self) -> Share:
        """All steps of the run."""
        member, rate_given = self._member, self._job.settings.rate
        begin = time.perf_counter()
        notes = Notes(member, self._shared, len(self._course), self._part.last)
        for number, chosen, rate in self._course:
            loss = self.step(number, chosen, rate)
            if not math.isfinite(loss):
                raise DivergenceError(
                    f"the loss became {loss} in step {number + 1}: try a rate below {rate_given:g}"
                )
            self._shared["shares"][member.rank, number] = loss
            notes.add(number, loss)
        spent = time.perf_counter() - begin
        return Share(member.rank, spent, self._busy, 0.0, member.idle)

    def test(self) -> Scored | None:
        """The test set, half a batch at a time: a stage fills one half while the next reads one.

        The last stage alone knows the result.
        """
        images, rank, member = self._data.test_images, self._member.rank, self._member
        if not len(images):
            return None
        size = self._course.sizes[0]
        halves = 2 if size > 1 else 1
        chunks = batches(len(images), size // halves)
        runs = {
            rows: self._part.network.program(rows, self._layout.dtype).compile(self._job.device)
            for rows in set(chunks)
        }
        parameters = sharded_update.by_path(self._named, self._layout, "p")
        for rows, run in runs.items():
            run(parameters, np.zeros((rows, *self._part.network.inputs), self._layout.dtype))
        member.meet()
        begin, logits = time.perf_counter(), []
        for number, rows in enumerate(chunks):
            here = slice(number % halves * chunks[0], number % halves * chunks[0] + rows)
            if rank:
                member.hear(rank - 1)
                x = self._shared[f"on.{rank}"][here]
            else:
                x = images[number * chunks[0] : number * chunks[0] + rows]
            y = runs[rows](parameters, x)
            if rank:
                member.tell(rank - 1)  # that half may be filled anew
            if self._part.last:
                logits.append(y.copy())
                continue
            if number >= halves:
                member.hear(rank + 1)
            np.copyto(self._shared[f"on.{rank + 1}"][here], y)
            member.tell(rank + 1)
        took = time.perf_counter() - begin
        if not self._part.last:
            return None
        return Scored(took, *score(np.concatenate(logits), self._data.test_labels))


@dataclass
class _Flow:
    """A micro-batch on its way: its rows of the batch, what it reads, and what is kept of it."""

    rows: tuple[int, int]
    inputs: list[Any]
    slot: int
    kept: Sequence[Any] = ()
    loss: float = 0.0


def work(member: Member, shared: Shared, job: Job, data: Data | None) -> tuple[Share, Any]:
    """A worker from its start to its end."""
    with job.device, job.device.backend.scope(job.device):
        worker = PipelineWorker(member, shared, job, data)
        worker.warm()
        return worker.train(), worker.test()
