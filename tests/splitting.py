"""Helpers for tests that split one network over workers."""

from typing import Any

import numpy as np

from pareo.device import Device
from pareo.nn import (
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    MaxPool,
    ReLU,
    Residual,
    Sequential,
)
from pareo.parallel.group.batch_schedule import BatchSchedule, shard
from pareo.program import value_and_grad
from pareo.training import fit
from pareo.training.settings import Settings

WIDE = Sequential([Dense(64), ReLU(), Dropout(0.5), Dense(48), Dropout(0.3), Dense(3)], (16,))
IMAGES = Sequential([Conv(4, 3), ReLU(), MaxPool(2), Flatten(), Dense(30), Dense(3)], (2, 8, 8))
NORMAL = Sequential(
    [Conv(4, 3, padding=1, bias=False), BatchNorm(), ReLU(),
     Residual([Conv(4, 3, padding=1, bias=False), BatchNorm()], activation=ReLU()),
     GlobalAveragePool(), Flatten(), Dense(3)],
    (2, 8, 8), "normal",
)  # fmt: skip
RECIPES: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam", "rate": 0.01, "decay": 0.1},
    "adamw, biases": {"optimizer": "adamw", "rate": 0.01, "decay": 0.1, "decay_biases": True},
    "lion": {"optimizer": "lion", "rate": 0.002, "decay": 0.1},
    "nesterov": {"optimizer": "nesterov", "rate": 0.05, "decay": 0.1, "schedule": "onecycle"},
    "clip": {"rate": 0.2, "clip": 0.4, "momentum": 0.5, "decay": 0.01},
    "everything": {
        "optimizer": "adamw", "rate": 0.01, "decay": 0.1, "clip": 0.4, "average": 0.9,
        "smoothing": 0.1, "class_weights": (1.0, 0.0, 3.0), "schedule": "warmup:1+cosine",
    },
}  # fmt: skip
EXACT = {"rtol": 1e-11, "atol": 1e-12}  # float64: sums in another order, some steps of training
SINGLE = {"rtol": 1e-4, "atol": 1e-6}  # float32: likewise


def alone(network: Sequential, images: Any, settings: Settings, epochs: int, device: str) -> Any:
    """The same run by one worker."""
    return fit(network, images, settings, epochs=epochs, device=device, progress=False)


def by_parts(
    network: Sequential, images: Any, settings: Settings, epochs: int, parts: int, chained: bool
) -> tuple[list[float], dict[str, Any]]:
    """The losses and parameters if each part of a batch has its own statistics.

    The state is that of the first part; if `chained`, it moves from part to part.
    """
    recipe, declared = settings.recipe, network.parameters(network.inputs)
    parameters = network.initialise(settings.seed, settings.dtype)
    slots = {name: {p: np.zeros_like(parameters[p]) for p in recipe.trained(declared)}
             for name in recipe.optimizer.slots}  # fmt: skip
    floats, losses = images.as_float(settings.dtype), []
    for _, indices, numbers in BatchSchedule(settings, len(floats.images), epochs):
        whole, total = 0.0, dict.fromkeys(recipe.trained(declared), 0.0)
        state = {path: parameters[path] for path in network.state}
        for part in range(parts):
            rows = indices[slice(*shard(len(indices), part, parts))]

            given = {**parameters, **state}

            def loss(moving: Any, rows: Any = rows, given: Any = given) -> Any:
                batch = floats.images[rows], floats.labels[rows]
                return network.loss_and_state({**given, **moving}, *batch)[0]

            share = len(rows) / len(indices)
            with Device("vectorized"):
                found, gradients = value_and_grad(loss)({path: parameters[path] for path in total})
                new = network.loss_and_state(given, floats.images[rows], floats.labels[rows])[1]
            whole += share * float(found)
            total = {path: total[path] + share * gradients[path] for path in total}
            if chained or not part:
                state = new
        losses.append(whole)
        parameters |= state
        with Device("vectorized"):
            for path, gradient in total.items():
                own = {name: arrays[path] for name, arrays in slots.items()}
                parameters[path], moved = recipe.optimizer.update(
                    parameters[path], gradient, own, numbers, recipe.decay_of(declared[path])
                )
                for name, array in moved.items():
                    slots[name][path] = array
    return losses, parameters


def same(found: dict[str, Any], expected: dict[str, Any], **tolerance: float) -> None:
    """Two sets of parameters are the same to rounding."""
    assert list(found) == list(expected)
    for path in found:
        np.testing.assert_allclose(found[path], expected[path], **tolerance, err_msg=path)
