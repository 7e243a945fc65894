"""The gate of a sweep: one exact step, kept in a file, serves all contestants and batch sizes.

All cells train on the same few images (`repeated_batch`), whatever their batch size. Tolerances
are those of the race.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pareo.lab.contestants import Task, Trainer
from pareo.lab.experiment.gate.parity import TINY, exact_step, moved, parity
from pareo.lab.experiment.gate.repeated_batch import chosen, different, few_of
from pareo.lab.experiment.gate.rounding import Found, Reach, Rounded


@dataclass(frozen=True)
class Taken:
    """One step from the gate's weights, and the loss of the same images after it."""

    loss: float
    next_loss: float
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Kept:
    """An exact step as it is kept in a file.

    next_loss: the loss after the step. slopes: norms of the parameters' gradients after the step.
    """

    found: Found
    next_loss: float
    reach: Reach
    slopes: dict[str, float]


def reference(task: Task, folder: Path, precision: str) -> Callable[[int, int], Path]:
    """A function that writes an exact step at a batch size to a file, and returns its path.

    There are several steps, on different images: if one meets a kink, the next will not. Batch
    sizes with the same images share a file.
    """

    def answer(batch: int, which: int) -> Path:
        few = different(batch)
        file = folder / f"exact-{which}-{few}.npz"
        if file.exists():
            return file
        small = few_of(task, batch)
        images, labels = small.data()
        order = chosen(few, which, few, small.count())[0]
        run = Rounded(small.network, few, small.threads, small.loss)
        start, seen = small.gate_parameters(), (images[order], labels[order])
        reach, found = run.reach(start, *seen, precision)
        after = run(moved(start, found, small.rate), *seen)
        np.savez(
            file, loss=found.loss, next=after.loss, loss_reach=reach.loss,
            reach=[reach.gradients[path] for path in found.gradients],
            kinks=[reach.kinks.get(path, 0.0) for path in found.gradients],
            sums=[reach.sums.get(path, 0.0) for path in found.gradients],
            slopes=[np.linalg.norm(after.gradients[path]) for path in found.gradients],
            state_reach=[reach.state[path] for path in found.state],
            **{f"gradients/{path}": a for path, a in found.gradients.items()},
            **{f"state/{path}": a for path, a in found.state.items()},
        )  # fmt: skip
        return file

    return answer


def read(file: Path) -> Kept:
    """The exact step in a file."""
    with np.load(file) as kept:
        gradients, state = (
            {name.removeprefix(start): kept[name] for name in kept if name.startswith(start)}
            for start in ("gradients/", "state/")
        )
        reach, sums, kinks, slopes = (
            dict(zip(gradients, kept[name].tolist(), strict=True))
            for name in ("reach", "sums", "kinks", "slopes")
        )
        states = dict(zip(state, kept["state_reach"].tolist(), strict=True))
        loss, next_loss, loss_reach = (float(kept[name]) for name in ("loss", "next", "loss_reach"))
        found = Found(loss, gradients, state)
        return Kept(found, next_loss, Reach(loss_reach, reach, sums, kinks, states), slopes)


def steps(task: Task, trainer: Trainer, start: dict[str, Any], images: int, which: int) -> Taken:
    """A step of the gate, taken by a contestant.

    start: the gate's weights. images: how many there are in all.
    """
    few = different(task.batch)
    order = chosen(few, which, task.batch, images)
    trainer.load(start)
    loss = float(trainer.run(order)[0])
    after = trainer.parameters()
    return Taken(loss, float(trainer.run(order)[0]), after)


def judged(
    task: Task, taken: Taken, start: dict[str, Any], file: Path
) -> tuple[str, dict[str, float]]:
    """How a step differs from the exact one in a file: a sentence, and the relative errors."""
    error: dict[str, float] = {}
    kept = read(file)
    few = different(task.batch)
    exact = exact_step(task, start, kept.found, kept.reach, few, task.batch // few)
    step = [(taken.loss, taken.parameters)]
    differs = parity(task, step, lambda *_: exact, error, before=start)
    if differs:
        return differs, error
    # A loss is off by its own rounding, and by its slope times how far each parameter may be off.
    limit = exact.loss_error * max(1.0, abs(kept.next_loss) / max(abs(kept.found.loss), TINY))
    limit += sum(slope * exact.errors[path] for path, slope in kept.slopes.items())
    off, size = abs(taken.next_loss - kept.next_loss), max(abs(kept.next_loss), TINY)
    if not off <= limit:
        return f"the loss in step 2 is {off / size:.1e} off, {limit / size:.0e} allowed", error
    return "", error
