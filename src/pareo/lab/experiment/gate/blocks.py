"""Blocks of a few steps, each compared with float64 from the contestant's own parameters.

In a chaotic network (deep ones with ReLUs and batch normalisation are) rounding grows so much in a
hundred steps that the end of a training says little. So the gate at the end looks at every few
steps of it: what rounding did in earlier blocks is part of where a block starts, and a step that is
left out is a quarter of its block.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pareo.lab.contestants import Task, pareo_step
from pareo.lab.experiment.gate.course import CROSSED, MOST_CROSSED, has_kinks
from pareo.lab.experiment.gate.parity import FAST, MARGIN, NOTHING, stored
from pareo.lab.experiment.gate.rounding import Rounded

SIZE = 4  # steps of a block
GROWTH = 2.0  # how much rounding may grow within a block
# Of a block's move: with more, a parameter tells nothing. A step that is left out is about 0.25.
TELLING = 0.12
# Of a block's move, always: gradients that cancel more than those of the first step are less exact.
LEAST = 0.02


def reference(task: Task, precision: str = "float32") -> Callable[[int, list[Any]], str]:
    """A function of the first step and the parameters after each block: what differs, or empty."""
    shares: dict[str, float] = {}

    def answer(first: int, taken: list[dict[str, Any]]) -> str:
        trainer = pareo_step.PareoTrainer(task, "vectorized", "float64")
        if not shares:
            shares.update(_shares(task, precision, task.order(task.count(), first, 1)[0]))
        crossed = min(MOST_CROSSED, CROSSED / task.batch) if has_kinks(task) else 0.0
        before, told = task.parameters(), 0
        for number, after in enumerate(taken):
            order = task.order(task.count(), first + number * SIZE, SIZE)
            trainer.load(before)
            lengths = _run(trainer, order)
            exact, begun = trainer.parameters(), number * SIZE
            for path, length in lengths.items():
                share = max(GROWTH * shares[path], LEAST) + crossed / SIZE
                allowed = share * length + stored(exact[path])
                if length <= 0 or allowed > TELLING * length:
                    continue
                told += 1
                off = float(np.linalg.norm(after[path] - exact[path]))
                if not off <= allowed:
                    return (
                        f"{path} moved {off / length:.1e} off in steps {begun + 1} to "
                        f"{begun + SIZE} of a training after the last round, "
                        f"{allowed / length:.0e} allowed"
                    )
            before = after
        return "" if told else UNTOLD

    return answer


UNTOLD = "cannot tell"  # rounding alone may explain any difference


def _run(trainer: pareo_step.PareoTrainer, order: Any) -> dict[str, float]:
    """Train a block; the sum of the lengths of its steps, by parameter."""
    before = trainer.parameters()
    lengths: dict[str, float] = {}
    for chosen in order:
        trainer.run(chosen[None])
        after = trainer.parameters()
        for path, a in after.items():
            lengths[path] = lengths.get(path, 0.0) + float(np.linalg.norm(a - before[path]))
        before = after
    return lengths


def _shares(task: Task, precision: str, chosen: Any) -> dict[str, float]:
    """What the first gate would allow in a step, as a share of its move, for each parameter."""
    images, labels = (a[chosen] for a in task.data())
    start = task.parameters()
    run = Rounded(task.network, task.batch, task.threads, task.loss)
    reach, found = run.reach(start, images, labels, precision)
    shares = {}
    for path, gradient in found.gradients.items():
        length, sums = float(np.linalg.norm(gradient)), reach.sums.get(path, 0.0)
        far = MARGIN * (reach.gradients[path] + reach.kinks.get(path, 0.0)) + sums
        shares[path] = FAST + far / length if length > NOTHING * far else np.inf
    for path, a in found.state.items():
        length = float(np.linalg.norm(a - start[path]))
        shares[path] = FAST + MARGIN * reach.state[path] / length if length else np.inf
    return shares
