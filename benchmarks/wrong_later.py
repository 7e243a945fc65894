"""Contestants that are right in their first steps and wrong later, for the gate at the end.

Contestant("benchmarks.wrong_later", {"base": "pareo-compiled", "change": "frozen"})
"""

from typing import Any

import numpy as np

from pareo.lab.contestants import Task, registry

LATER = 10  # steps that are right
CHANGES = {
    "left_out": "a step left out in every hundred",
    "momentum": f"other momentum from step {LATER} on",
    "frozen": f"weights frozen from step {LATER} on",
}


def build(task: Task, base: str, change: str) -> Any:
    """The trainer of another contestant, which changes what some of its steps do."""
    trainer: Any = registry.BUILT_IN[base].build(task)
    run, taken = trainer.run, 0
    moves: dict[str, Any] = {}

    def changed(order: Any) -> list[float]:
        nonlocal taken
        losses = []
        for chosen in order:
            number, taken = taken, taken + 1
            if not wrong(change, number):
                losses.append(float(run(chosen[None])[0]))
                continue
            before = trainer.parameters()
            losses.append(float(run(chosen[None])[0]))
            if change == "momentum":
                after = trainer.parameters()
                for path, start in before.items():
                    moves[path] = after[path] - start + np.float32(0.9) * moves.get(path, 0)
                    before[path] = start + moves[path]
            trainer.load(before)
        return losses

    trainer.run = changed
    return trainer


def wrong(change: str, number: int) -> bool:
    """Whether a step is changed.

    >>> [number for number in range(300) if wrong("left_out", number)]
    [99, 199, 299]
    """
    return number % 100 == 99 if change == "left_out" else number >= LATER
