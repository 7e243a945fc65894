"""The parity gate of a sweep: one exact answer serves every contestant at every batch size.

Everyone is held against the same few images (`lab.few`), whatever its batch size. Tolerances are
the race's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pareo.lab.contestants import Task, Trainer, pareo_step
from pareo.lab.few import chosen, different, few_of
from pareo.lab.parity import Tolerance, kinked, parity


@dataclass(frozen=True)
class Taken:
    """One step from the first weights, and the loss of the same images after it."""

    loss: float
    next_loss: float
    parameters: dict[str, Any]


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
        small = few_of(task, batch)
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


def steps(task: Task, trainer: Trainer, start: dict[str, Any], images: int, which: int) -> Taken:
    """What a contestant makes of a step of the gate.

    `start` are the first weights; `images` are all that there are.
    """
    few = different(task.batch)
    order = chosen(few, which, task.batch, images)
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
