"""Layers of the user's own in other frameworks: the same training, or a sentence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pareo import nn, op
from pareo.lab.contestants import CONTESTANTS, Task
from pareo.lab.contestants.own_layers import own_layers, refusal
from pareo.lab.experiment.gate.parity import parity, reference
from pareo.lab.experiment.runner import Runner
from pareo.lab.experiment.worker import Worker
from pareo.nn.layers import Layer, Parameter


@dataclass(frozen=True)
class Gated(Layer):
    """A soft step times a weight for each element, and x."""

    slope: float = 2.0

    def parameters(self, shape: tuple[int, ...]) -> dict[str, Parameter]:
        return {"gate": Parameter(shape, (1, 1), "ones"), "b": Parameter((), (1, 1), "ones")}

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Any) -> Any:
        return x + op.tanh(self.slope * x) * parameters["gate"] / (1 + parameters["b"] ** 2)


@dataclass(frozen=True)
class Turned(Layer):
    """Channels that are added to the next one, so that a wrong layout shows."""

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Any) -> Any:
        last = op.part(x, 1, (x.shape[1] - 1, x.shape[1]))
        rows = np.arange(x.shape[2], dtype=x.dtype)[:, None]
        return x * rows + op.concat([last, op.part(x, 1, (0, x.shape[1] - 1))], axis=1)


@dataclass(frozen=True)
class Normed(Layer):
    """An operator for which frameworks have no function."""

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Any) -> Any:
        one = np.ones(x.shape[1], x.dtype)
        return op.layer_norm(x, one, 0 * one)


@dataclass(frozen=True)
class Counted(Layer):
    """A layer with state."""

    def parameters(self, shape: tuple[int, ...]) -> dict[str, Parameter]:
        return {"count": Parameter((), (1, 1), "zeros", trained=False)}

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Any) -> Any:
        return x


def task(*layers: Layer, shape: tuple[int, ...] = (3, 5, 4)) -> Task:
    return Task(nn.Sequential([*layers, nn.Dense(3)], shape, "own"), 6, rate=0.1)


IMAGES = task(
    nn.Conv(4, 3), Gated(), Turned(), nn.Tanh(), nn.Conv(3, 2), Gated(0.5), nn.Flatten(), Gated()
)


@pytest.mark.parametrize("name", ["pareo-vectorized", "torch", "torch-channels-last"])
def test_a_network_with_own_layers_passes_the_gate(name: str) -> None:
    assert refusal(IMAGES, "torch") == ""
    answer = Runner(CONTESTANTS[name], IMAGES)("agree")
    assert parity(IMAGES, answer, reference(IMAGES), {}) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jax", "jax-channels-last", "jax-scan", "torch-compile"])
def test_compilers_take_own_layers(name: str) -> None:
    if CONTESTANTS[name].missing():
        pytest.skip(f"{name} is {CONTESTANTS[name].missing()}")
    with Worker(Runner, CONTESTANTS[name], IMAGES) as worker:
        assert parity(IMAGES, worker.ask("agree"), reference(IMAGES), {}) == ""


def test_another_layer_is_refused() -> None:
    other = task(
        nn.Conv(4, 3), Gated(), Turned(), nn.Tanh(), nn.Conv(3, 2), Gated(), nn.Flatten(), Gated()
    )
    assert set(own_layers(other)) != set(own_layers(IMAGES))
    answer = Runner(CONTESTANTS["torch"], other)("agree")
    assert "in step 1" in parity(IMAGES, answer, reference(IMAGES), {})


def test_what_cannot_be_expressed_is_a_sentence() -> None:
    for framework in ("tensorflow", "pytensor", "tinygrad"):
        assert refusal(IMAGES, framework) == "it has no Gated, a layer of your own"
    normed = task(nn.Flatten(), Normed())
    assert refusal(normed, "jax") == "it has no layer_norm for Normed, a layer of your own"
    assert (
        refusal(task(nn.Flatten(), Counted()), "torch") == "it has no Counted, a layer of your own"
    )
    assert refusal(task(nn.Flatten()), "tinygrad") == ""
