"""One worker of a split by neurons: its part of every dense layer, on every image of the batch."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.device import Device
from pareo.nn.layers import Context, Layer
from pareo.nn.network import Sequential
from pareo.parallel.group import sharded_update as descent
from pareo.parallel.group.batch_schedule import Course, Notes, batches, stretch
from pareo.parallel.group.result import Data, Scored, Share
from pareo.parallel.group.shared_memory import PARTS, Shared
from pareo.parallel.group.worker_group import Member
from pareo.parallel.neurons.segments import Mine, dropouts, segments
from pareo.parallel.pipeline.balance import predicted
from pareo.parallel.pipeline.stage import Stage, Traced, layout_for
from pareo.program import trace, value_and_grad
from pareo.spec import Spec
from pareo.training.evaluate import score
from pareo.training.settings import Settings
from pareo.training.step import dropout_seeds


@dataclass(frozen=True)
class Job:
    """What all workers are told."""

    network: Sequential
    settings: Settings
    device: Device
    epochs: int

    def mine(self, rank: int, workers: int) -> list[Mine]:
        """A worker's share of each segment."""
        return [
            Mine(segment, stretch(segment.split, rank, workers), rank == 0)
            for segment in segments(self.network, workers)[0]
        ]

    def specs(self, mine: Mine) -> dict[str, Spec]:
        """The parameters of a worker's share of a segment."""
        return mine.specs(self.network.parameters(self.network.inputs), self.settings.dtype)

    def traced(self, mine: Sequence[Mine], rows: int) -> list[Traced]:
        """The programs of a worker's shares."""
        return [part.traced(self.specs(part), rows, k > 0) for k, part in enumerate(mine)]

    def cost(self, rank: int, workers: int, rows: int) -> float:
        """What a worker has to do in a step, in FLOPs."""
        pieces = self.traced(self.mine(rank, workers), rows)
        return sum(predicted(piece.program) for piece in pieces)


def shared_specs(job: Job, workers: int, count: int) -> dict[str, Spec]:
    """The arrays that workers see: everyone's part of each sum, twice, and the results.

    Twice, because a worker may be a step ahead of one that still reads.
    """
    dtype, course = job.settings.dtype, Course(job.settings, count, job.epochs)
    parameters = job.network.parameters(job.network.inputs)
    found = {f"p.{path}": Spec(p.shape, dtype) for path, p in parameters.items()}
    if job.settings.momentum:
        found |= {f"v.{path}": Spec(p.shape, dtype) for path, p in parameters.items()}
    for number, segment in enumerate(segments(job.network, workers)[0]):
        found[f"on.{number}"] = Spec((2, workers, course.sizes[0], segment.outputs), dtype)
        if number:
            found[f"back.{number}"] = Spec((2, workers, course.sizes[0], *segment.shape), dtype)
    return found | course.specs()


def shown(specs: dict[str, Spec]) -> int:
    """Bytes that workers show each other in a step."""
    return sum(s.nbytes for name, s in specs.items() if name.startswith(("on.", "back."))) // 2


class _Piece:
    """One worker's share of a segment: its parameters, and how it moves them."""

    def __init__(self, job: Job, piece: Traced, mine: Mine) -> None:
        self._job = job
        self._parts = mine.segment.parts(mine.between, mine.first)
        self._batch = piece.program.specs[piece.outputs[0]].shape[0]
        self.layout = layout_for(piece, self._batch, job.settings.dtype)
        room = descent.specs(self.layout, job.settings.momentum, self._batch)
        self._room = {name: np.zeros(spec.shape, spec.dtype) for name, spec in room.items()}
        self.parameters = descent.by_path(self._room.__getitem__, self.layout, "p")

    def exchange(self, shared: Shared, bring: bool) -> None:
        """Fetch this worker's part of the parameters, or bring it home."""
        for kind in "pv" if self._job.settings.momentum else "p":
            for path, array in descent.by_path(self._room.__getitem__, self.layout, kind).items():
                home = shared[f"{kind}.{path}"][self._parts[path]]
                np.copyto(*((home, array) if bring else (array, home)))

    def targets(self, rows: int, total: Any) -> list[Any]:
        """Where gradients go."""
        whole = descent.whole(total, self.layout).values()
        return [*whole, *descent.rows_of(self._room.__getitem__, self.layout, 0, rows)]

    def descent(self, batch: int) -> descent.Descent:
        rows = {path: (0, spec.shape[0]) for path, spec in self.layout.factors.items()}
        return descent.Descent(
            self.layout, self._job.settings, self._job.device, batch, self._room.__getitem__,
            (0, self.layout.length), rows,
        )  # fmt: skip


class NeuronWorker:
    """One worker under way."""

    def __init__(self, member: Member, shared: Shared, job: Job, data: Data | None) -> None:
        self._member, self._shared, self._job = member, shared, job
        self._data = data or Data(*[shared[part] for part in PARTS])
        self._course = Course(job.settings, len(self._data.images), job.epochs)
        found, after = segments(job.network, member.workers)
        self._after, self._seeds = after, dropouts(found, after)
        self._mine = job.mine(member.rank, member.workers)
        whole = job.traced(self._mine, self._course.sizes[0])
        self._pieces = [
            _Piece(job, piece, mine) for piece, mine in zip(whole, self._mine, strict=True)
        ]
        for piece in self._pieces:
            piece.exchange(shared, bring=False)
        self._stages = {}
        for size in set(self._course.sizes):
            programs = job.traced(self._mine, size)
            self._stages[size] = [
                (Stage(program, piece.layout, job.device), piece.descent(size))
                for program, piece in zip(programs, self._pieces, strict=True)
            ]
        self._ends = {size: _loss_of(job, after, size) for size in set(self._course.sizes)}
        self._communication = 0.0

    def _add_up(self, name: str, number: int, size: int) -> Any:
        """The sum of everyone's part, in the order of ranks; all workers get the same bits."""
        self._member.meet()
        begin = time.perf_counter()
        parts = self._shared[name][number % 2, :, :size]
        total = parts[0].copy()
        for part in parts[1:]:
            np.add(total, part, out=total)
        self._communication += time.perf_counter() - begin
        return total

    def step(self, number: int, chosen: Any, rate: float) -> float:
        """One step; the loss before it."""
        size, rank = len(chosen), self._member.rank
        seeds = dropout_seeds(self._job.settings.seed, number, sum(self._seeds))
        numbers = iter([np.asarray(seed, np.int64) for seed in seeds])
        x, flows = self._data.images[chosen], []
        for k, (stage, _) in enumerate(self._stages[size]):
            given = [next(numbers) for _ in range(self._seeds[k])]
            inputs = [*self._pieces[k].parameters.values(), x, *given]
            mine = self._shared[f"on.{k}"][number % 2, rank, :size]
            flows.append((inputs, stage.forward([*inputs, None], [mine])))
            x = self._add_up(f"on.{k}", number, size)
        loss, g = self._ends[size](x, self._data.labels[chosen], tuple(numbers))
        for k in range(len(flows) - 1, -1, -1):
            stage, move = self._stages[size][k]
            inputs, kept = flows[k]
            targets = self._pieces[k].targets(size, move.total)
            if k:
                targets.append(self._shared[f"back.{k}"][number % 2, rank, :size])
            stage.backward([*inputs, g], kept, targets)
            if k:
                g = self._add_up(f"back.{k}", number, size)
        if math.isfinite(loss):
            for _, move in self._stages[size]:
                move.move(rate)
        return float(loss)

    def warm(self) -> None:
        """Compile machine code before the clock runs: a step that moves nothing."""
        for size in set(self._course.sizes):
            for _, move in self._stages[size]:
                move.warm()
            self.step(0, np.zeros(size, np.int64), 0.0)
            self._member.meet()
        for piece in self._pieces:  # with momentum, velocities did move
            piece.exchange(self._shared, bring=False)
        self._communication = self._member.idle = 0.0

    def train(self) -> Share:
        """All steps of the run; a loss that is no number is the last, for all workers alike."""
        member, begin = self._member, time.perf_counter()
        notes = Notes(member, self._shared, len(self._course), member.rank == 0)
        for number, chosen, rate in self._course:
            loss = self.step(number, chosen, rate)
            notes.add(number, loss)
            if not math.isfinite(loss):
                break
        spent = time.perf_counter() - begin
        busy = spent - self._communication - member.idle
        for piece in self._pieces:
            piece.exchange(self._shared, bring=True)
        return Share(member.rank, spent, busy, self._communication, member.idle)

    def test(self) -> Scored | None:
        """The test set, as many images at a time as in training."""
        images, labels = self._data.test_images, self._data.test_labels
        if not len(images):
            return None
        chunks = batches(len(images), self._course.sizes[0])
        runs = {
            rows: [
                mine.forward(self._job.specs(mine), rows).compile(self._job.device)
                for mine in self._mine
            ]
            for rows in set(chunks)
        }
        self._member.meet()  # nobody reads what is written over now
        for rows, programs in runs.items():
            self._forward(programs, images[:rows], 0)
            self._member.meet()
        begin = time.perf_counter()
        logits = [
            self._forward(runs[rows], images[k * chunks[0] : k * chunks[0] + rows], k)
            for k, rows in enumerate(chunks)
        ]
        took = time.perf_counter() - begin
        return Scored(took, *score(np.concatenate(logits), labels))

    def _forward(self, programs: Sequence[Any], x: Any, number: int) -> Any:
        for k, run in enumerate(programs):
            mine = self._shared[f"on.{k}"][number % 2, self._member.rank, : len(x)]
            np.copyto(mine, run(self._pieces[k].parameters, x))
            x = self._add_up(f"on.{k}", number, len(x))
        for layer in self._after:
            x = layer.apply({}, x, Context())
        return x


def _loss_of(job: Job, after: Sequence[Layer], size: int) -> Any:
    """From logits and labels to the loss and the gradient by the logits: everyone does it all."""

    def loss(logits: Any, labels: Any, seeds: Any) -> Any:
        context = Context(True, iter(seeds))
        for layer in after:
            logits = layer.apply({}, logits, context)
        return op.cross_entropy(logits, labels)

    seeds = (Spec((), "int64"),) * dropouts([], after)[0]
    logits = Spec((size, job.network.classes), job.settings.dtype)
    program = trace(value_and_grad(loss), logits, Spec((size,), "int64"), seeds)
    return program.compile(job.device)


def work(member: Member, shared: Shared, job: Job, data: Data | None) -> tuple[Share, Any]:
    """A worker from its start to its end."""
    with job.device, job.device.backend.scope(job.device):
        worker = NeuronWorker(member, shared, job, data)
        worker.warm()
        return worker.train(), worker.test()
