"""The parity gate: no time is shown for a contestant whose first steps are not exact enough."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo import nn
from pareo.lab.contestants import Task, pareo_step
from pareo.nn.network import Sequential

# Each step is held against an exact one from the contestant's own parameters before it, so that
# what rounding did in the first is not counted again, and amplified, in the second.
#
# A loss is a sum of float32 products that keeps six digits. A gradient without kinks keeps four.
LOSS, SMOOTH = 1e-5, 1e-4
# With kinks (a ReLU's, or the largest element of a window) a rounded input can fall on the other
# side of one, and terms of the gradient go elsewhere. GoogLeNet at 224 pixels has millions: there
# float64 itself moves its first filters by 2e-3 of their length when all weights are changed by one
# float32 rounding (6e-8), by 3e-6 when by a tenth of that, and float32 does by up to 3.5e-3. So one
# parameter may be off by KINKED, less than an error of 1 %, but the median of all by no more than
# MEDIAN: a lower precision would show in every one.
KINKED, MEDIAN = 8e-3, 2e-3
# One ReLU of the last hidden layer that falls the other way, of N that are on, changes all
# gradients before it by 1 / sqrt(N), and the median with them: by 7e-3 in AlexNet at batch 8, where
# the same one did so in pareo and in PyTorch, channels last; at batch 1 it would be 2 %. So a step
# may be off by CHANCE at most, if others are exact.
CHANCE = 0.05
ROUNDING = 1e-7  # of a parameter's own length: what storing it in float32 costs


@dataclass(frozen=True)
class Tolerance:
    """By what part a loss may be off, and how a parameter moved: without kinks, with, in median."""

    loss: float = LOSS
    smooth: float = SMOOTH
    kinked: float = KINKED
    median: float = MEDIAN

    @property
    def chance(self) -> float:
        """By what part a move may be off in a step that is not exact, where there are kinks."""
        return max(CHANCE, self.kinked)


FLOAT32 = Tolerance()
# Factors keep 8 bits in bfloat16. JAX with everything in it, on a CPU, was off by 2e-3 in a loss;
# in a parameter by 0.18 (papers-cnn, whose first bias is a small sum of large terms) and, with
# kinks, 0.45 (GoogLeNet at 64 pixels), their median by 0.18. So this gate finds a gradient that is
# missing or twice as large, not one that is a tenth off: for that there is the race in float32.
# tf32 keeps three bits more. PyTorch on an H200 was off by 0.11 to 0.14 in GoogLeNet's first layer
# (eight orders of images at batch 1 and 4), pareo by the same; their medians by 0.016 to 0.026.
TOLERANCES = {
    "float32": FLOAT32,
    "tf32": Tolerance(loss=1e-3, smooth=0.04, kinked=0.2, median=0.04),
    "bfloat16": Tolerance(loss=1e-2, smooth=0.3, kinked=0.7, median=0.3),
}


def reference(task: Task, order: Callable[[int], Any] | None = None) -> Callable[..., Any]:
    """pareo in float64: loss and parameters after one step, by its number, from any parameters.

    `order` tells the images of a step, where they are not the task's own.
    """
    trainer = pareo_step.PareoTrainer(task, "vectorized", "float64")
    count = task.count()
    of_step = order or (lambda step: task.order(count, step, 1))

    def answer(step: int, parameters: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        trainer.load(parameters)
        loss = float(trainer.run(of_step(step))[0])
        return loss, trainer.parameters()

    return answer


def kinked(network: Sequential) -> bool:
    """Whether a layer has a gradient that jumps."""
    kinds = (nn.ReLU, nn.MaxPool)
    return any(isinstance(layer, kinds) for _, layer, _ in network.walk(network.inputs))


def by_chance(task: Task, error: dict[str, float], allowed: Tolerance) -> bool:
    """Whether a step that is not exact may have fallen on the other side of a kink."""
    near = error["parameter"] <= allowed.chance
    return kinked(task.network) and error["loss"] < allowed.loss and near


def parity(
    task: Task,
    steps: Any,
    exact: Callable[..., Any],
    error: dict[str, float],
    allowed: Tolerance = FLOAT32,
    first: int = 0,
    before: dict[str, Any] | None = None,
) -> str:
    """Empty where every step agrees with the exact one, else what differs and by how much.

    Parameters are compared by how they moved: a gradient that is 1 % off is 1 % off here, however
    small the rate. `error` is given the largest part by which a loss and a parameter were off, and
    the largest median of parameters. Steps count from `first`, from the parameters `before` it.
    """
    error.update({name: error.get(name, 0.0) for name in ("loss", "parameter", "median")})
    before = before or task.parameters()
    most = allowed.kinked if kinked(task.network) else allowed.smooth
    for number, (loss, after) in enumerate(steps, start=first):
        where = f"in step {number + 1}"
        true_loss, true = exact(number, before)
        off = abs(loss - true_loss) / max(abs(true_loss), 1e-3)
        error["loss"] = float(np.maximum(error["loss"], off))
        if not off < allowed.loss:
            return f"the loss {where} is {off:.1e} off, {allowed.loss:.0e} allowed"
        found, wrong = [], ""
        for path, start in before.items():
            if after[path].shape != start.shape:
                return f"{path} has the shape {after[path].shape}, not {start.shape}"
            length = float(np.linalg.norm(true[path] - start))
            distance = float(np.linalg.norm(after[path] - true[path]))
            found.append(distance / length if length else distance)
            error["parameter"] = float(np.maximum(error["parameter"], found[-1]))
            if not distance <= most * length + ROUNDING * float(np.linalg.norm(start)):
                wrong = wrong or f"{path} moved {found[-1]:.1e} off {where}, {most:.0e} allowed"
        if wrong:
            return wrong
        error["median"] = max(error["median"], float(np.median(found)))
        middle = error["median"]
        if middle > allowed.median:
            return f"half of all moved {middle:.1e} off {where}, {allowed.median:.0e} allowed"
        before = after
    return ""
