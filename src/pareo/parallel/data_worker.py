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
from pareo.parallel.crew import Member
from pareo.parallel.factors import (
    Layout,
    dropout_widths,
    gradient_program,
    seeds_from,
    shown_gradients,
    update_program,
    updates,
)
from pareo.parallel.outcome import Data, Progress, Share
from pareo.parallel.shared import PARTS, Shared, views
from pareo.spec import Spec
from pareo.training.evaluate import LEAST_BATCH, Evaluator
from pareo.training.fit import shuffled
from pareo.training.settings import Settings
from pareo.training.step import dropout_seeds

REPORT_SECONDS = 0.2


@dataclass(frozen=True)
class Job:
    """What all workers are told: the run, and how its gradients travel."""

    network: Sequential
    settings: Settings
    device: Device
    layout: Layout
    epochs: int = 1


def stretch(count: int, rank: int, workers: int) -> tuple[int, int]:
    """A worker's part of `count` things, as even as can be.

    >>> [stretch(5, rank, 2) for rank in range(2)]
    [(0, 2), (2, 5)]
    """
    return count * rank // workers, count * (rank + 1) // workers


def batches(count: int, batch: int) -> list[int]:
    """How large the batches of an epoch are: the last may be smaller.

    >>> batches(10, 4)
    [4, 4, 2]
    """
    size = min(batch, count)
    whole, rest = divmod(count, size)
    return [size] * whole + ([rest] if rest else [])


class Rows:
    """One worker's rows of batches of one size: their gradients, written where they are wanted.

    vector: for the gradients that travel whole
    factors: for what comes into factored layers, then for their errors, rows of this worker alone
    """

    def __init__(
        self, job: Job, batch: int, between: tuple[int, int], vector: Any, factors: Sequence[Any]
    ) -> None:
        self.between, self._vector = between, vector
        layout, network = job.layout, job.network
        backend = job.device.backend
        whole = views(vector.view(np.uint8), layout.whole) if layout.length else {}
        self._targets = [*whole.values(), *factors]
        self._run: Any = None
        rows = between[1] - between[0]
        if rows:
            paths = [*network.parameters(network.inputs)]
            program = gradient_program(network, rows, batch, layout.dtype)
            program = shown_gradients(program, layout, paths)
            self._run = program.compile(job.device, updates(program, len(self._targets)))
            self._home = backend.to_host

    def __call__(self, parameters: Any, images: Any, labels: Any, seeds: Any) -> float:
        """Write the gradients of these rows; their share of the loss."""
        if self._run is None:  # more workers than images
            self._vector[:] = 0
            return 0.0
        numbers = tuple(np.asarray(seed, np.int64) for seed in seeds)
        results = self._run(parameters, images, labels, numbers, self._targets)
        return float(self._home(results[0]))


class Stretch:
    """A worker's stretch of all parameters: moved by the whole batch's gradients."""

    def __init__(self, job: Job, member: Member, shared: Shared, batch: int) -> None:
        layout = job.layout
        lo, hi = stretch(layout.length, member.rank, member.workers)
        rows = {
            path: stretch(spec.shape[0], member.rank, member.workers)
            for path, spec in layout.factors.items()
        }
        program = update_program(layout, hi - lo, rows, batch, job.settings)
        kinds = "pv" if job.settings.momentum else "p"
        self._moved = [_mine(shared, kind, lo, hi, rows) for kind in kinds]
        count = sum(map(len, self._moved))
        self._run = program.compile(job.device, {k: k for k in range(count)})
        self._parts = [shared["g"][rank, lo:hi] for rank in range(member.workers)]
        self._sum = np.empty(hi - lo, layout.dtype)
        paths = [path for path, (first, last) in rows.items() if last > first]
        self._factors = [
            {path: shared[f"{kind}.{path}"][:batch] for path in paths} for kind in "xd"
        ]
        self._kind = np.dtype(layout.dtype).type

    def add_up(self) -> None:
        """The sum of everyone's whole gradients, in the order of ranks."""
        np.copyto(self._sum, self._parts[0])
        for part in self._parts[1:]:
            np.add(self._sum, part, out=self._sum)

    def move(self, rate: float) -> None:
        """One step down."""
        self._go(self._moved, rate)

    def warm(self) -> None:
        """Compile machine code, on copies."""
        self._sum[:] = 0
        self._go([{path: a.copy() for path, a in arrays.items()} for arrays in self._moved], 0.0)

    def _go(self, moved: Any, rate: float) -> None:
        parameters, velocities = (*moved, {})[:2]
        self._run(parameters, velocities, self._sum, *self._factors, self._kind(rate))


def _mine(shared: Shared, kind: str, lo: int, hi: int, rows: Any) -> dict[str, Any]:
    """This worker's stretch of the parameters, or of the velocities."""
    mine = {"": shared[kind][lo:hi]} if hi > lo else {}
    for path, (first, last) in rows.items():
        if last > first:
            mine[path] = shared[f"{kind}.{path}"][first:last]
    return mine


def arrays(shared: Shared, job: Job, kind: str) -> dict[str, Any]:
    """All parameters ('p') or velocities ('v') by path, in the network's order."""
    layout = job.layout
    found = views(shared[kind].view(np.uint8), layout.whole) if layout.length else {}
    found |= {path: shared[f"{kind}.{path}"] for path in layout.factors}
    return {path: found[path] for path in job.network.parameters(job.network.inputs)}


def specs(job: Job, workers: int, count: int) -> dict[str, Spec]:
    """The arrays that all workers see."""
    layout, dtype = job.layout, job.layout.dtype
    sizes = batches(count, job.settings.batch_size)
    steps = job.epochs * len(sizes)
    found = {"g": Spec((workers, layout.length), dtype), "shares": Spec((workers,), "float64")}
    found |= {"losses": Spec((steps,), "float64"), "seconds": Spec((steps,), "float64")}
    for kind in "pv" if job.settings.momentum else "p":
        found[kind] = Spec((layout.length,), dtype)
        found |= {f"{kind}.{path}": spec for path, spec in layout.factors.items()}
    for path, spec in layout.factors.items():
        found[f"x.{path}"] = Spec((sizes[0], spec.shape[0]), dtype)
        found[f"d.{path}"] = Spec((sizes[0], spec.shape[1]), dtype)
    return found


class DataWorker:
    """One worker of a data-parallel run, with where its seconds went."""

    def __init__(self, member: Member, shared: Shared, job: Job, data: Data | None) -> None:
        self._member, self._shared, self._job = member, shared, job
        self._data = data or Data(*[shared[part] for part in PARTS])
        self._parameters = arrays(shared, job, "p")
        self._widths = dropout_widths(job.network)
        self._sizes = batches(len(self._data.images), job.settings.batch_size)
        self._rows = {size: self._rows_of(size) for size in set(self._sizes)}
        self._moves = {size: Stretch(job, member, shared, size) for size in set(self._sizes)}
        self._images = np.empty_like(self._data.images, shape=(self._most(), *job.network.inputs))
        self._warm()
        self._busy = self._communication = member.idle = 0.0

    def _rows_of(self, size: int) -> Rows:
        shared, rank = self._shared, self._member.rank
        lo, hi = between = stretch(size, rank, self._member.workers)
        kinds = [f"{kind}.{path}" for kind in "xd" for path in self._job.layout.factors]
        shown = [shared[name][lo:hi] for name in kinds]
        return Rows(self._job, size, between, shared["g"][rank], shown)

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
        move.add_up()
        middle = time.perf_counter()
        if math.isfinite(loss):
            move.move(rate)
        self._communication += middle - begin
        self._busy += time.perf_counter() - middle
        self._member.meet()
        return loss

    def train(self) -> Share:
        """All steps of the run."""
        job, size = self._job, self._sizes[0]
        steps = job.epochs * len(self._sizes)
        said = begin = time.perf_counter()
        for number in range(steps):
            epoch, place = divmod(number, len(self._sizes))
            if place == 0:
                order = shuffled(len(self._data.images), job.settings.order_seed, epoch)
            chosen = order[place * size : (place + 1) * size]
            loss = self._step(number, chosen, job.settings.rate_in(epoch))
            now = time.perf_counter()
            if self._member.rank == 0:
                self._shared["losses"][number] = loss
                self._shared["seconds"][number] = now - begin
                if now - said > REPORT_SECONDS:
                    self._member.report(Progress(number + 1, steps, loss))
                    said = now
            if not math.isfinite(loss):
                break
            begin = now
        member = self._member
        return Share(member.rank, self._busy, self._communication, member.idle)

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
    worker = DataWorker(member, shared, job, data)
    return worker.train(), worker.test()
