"""The parity gate of a sweep: one exact answer serves every contestant at every batch size.

A batch that holds the same few images again and again has the mean loss and the mean gradients of
those few. So the reference, pareo in float64, computes a few images once, and a contestant at batch
512 is held against it on those images, repeated. Tolerances are the race's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pareo.lab.contestants import Task, Trainer, pareo_step
from pareo.lab.parity import Tolerance, kinked, parity

MOST = 8  # different images in a gate's batch
BATCHES = 2  # of a gate: one, and another for who fell on a kink


def different(batch: int) -> int:
    """How many different images a batch of the gate has: all of them, or as many as divide it.

    >>> different(4), different(512), different(12), different(13)
    (4, 8, 6, 1)
    """
    return next(few for few in range(min(batch, MOST), 0, -1) if batch % few == 0)


def chosen(few: int, which: int, batch: int, images: int) -> Any:
    """The images of one batch of the gate, as an order of one step.

    >>> chosen(2, 1, batch=4, images=64)
    array([[2, 3, 2, 3]])
    """
    return np.tile(np.arange(which * few, (which + 1) * few) % images, batch // few)[None]


@dataclass(frozen=True)
class Taken:
    """One step from the first weights, and the loss of the same images after it."""

    loss: float
    next_loss: float
    parameters: dict[str, Any]


@dataclass(frozen=True)
class _Few(Task):
    """A task's first images in batches of a few: the same whatever the task's own batch is."""

    def count(self) -> int:
        return min(super().count(), BATCHES * self.batch)

    def data(self) -> tuple[Any, Any]:
        images, labels = super().data()
        return images[: self.count()].copy(), labels[: self.count()]


def reference(task: Task, folder: Path) -> Callable[[int, int], Path]:
    """Writes an exact step of the task at a batch size to a file, and answers with its name.

    There are several, on different images: where one falls on a kink, the next will not. Batch
    sizes whose images are the same share a file.
    """

    def answer(batch: int, which: int) -> Path:
        few = different(batch)
        file = folder / f"exact-{which}-{few}.npz"
        if file.exists():
            return file
        small = _Few(task.network, few, task.threads, task.rate, task.seed, task.source)
        trainer = pareo_step.PareoTrainer(small, "vectorized", "float64")
        order = chosen(few, which, few, small.count())
        loss = trainer.run(order)[0]
        kept = {f"parameters/{path}": array for path, array in trainer.parameters().items()}
        np.savez(file, loss=loss, next=trainer.run(order)[0], **kept)
        return file

    return answer


def read(file: Path) -> Taken:
    """The exact step in a file."""
    with np.load(file) as kept:
        start = "parameters/"
        found = {name.removeprefix(start): kept[name] for name in kept if name.startswith(start)}
        return Taken(float(kept["loss"]), float(kept["next"]), found)


def may_try_again(task: Task, error: dict[str, float], allowed: Tolerance) -> bool:
    """Whether who was refused may have fallen on a kink, and tries other images."""
    return kinked(task.network) and error["loss"] < allowed.loss


def steps(task: Task, trainer: Trainer, start: dict[str, Any], images: int, which: int) -> Taken:
    """What a contestant makes of a step of the gate.

    `start` are the first weights; `images` are all that there are.
    """
    few = different(task.batch)
    order = chosen(few, which, task.batch, min(images, BATCHES * few))
    trainer.load(start)
    loss = float(trainer.run(order)[0])
    after = trainer.parameters()
    return Taken(loss, float(trainer.run(order)[0]), after)


def judged(
    task: Task, taken: Taken, start: dict[str, Any], file: Path, allowed: Tolerance
) -> tuple[str, dict[str, float]]:
    """What differs in a step taken from the exact one in a file, and by which parts."""
    error: dict[str, float] = {}
    exact = read(file)
    differs = parity(
        task,
        [(taken.loss, taken.parameters)],
        lambda *_: (exact.loss, exact.parameters),
        error,
        allowed,
        before=start,
    )
    if differs:
        return differs, error
    # What one step gained may be off by the share that its moves may be off.
    most = allowed.kinked if kinked(task.network) else allowed.smooth
    scale = max(abs(exact.next_loss), 1e-3)
    limit = allowed.loss + most * abs(exact.loss - exact.next_loss) / scale
    off = abs(taken.next_loss - exact.next_loss) / scale
    if not off < limit:
        return f"the loss in step 2 is {off:.1e} off, {limit:.0e} allowed", error
    return "", error
