"""Dense layers, the batch split once for a step: the same as instruction by instruction."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from recipes import sgd

from pareo import Device
from pareo.backends.compiled.loops.dense import DenseLoop
from pareo.errors import ShapeError
from pareo.nn import Dense, Dropout, Flatten, ReLU, Sequential, Sigmoid, Softmax, Tanh, networks
from pareo.training.step import Step, training_loop

EVERY_ACTIVATION = Sequential(
    [Flatten(), Dense(20), Sigmoid(), Dense(7), ReLU(), Dense(9), Tanh(), Dense(3)], (2, 3)
)
TOLERANCE = {"float32": 1e-4, "float64": 1e-12}  # sums in another order, over five steps


def trained(
    network: Sequential,
    batch: int,
    loop: bool,
    threads: int = 2,
    momentum: float = 0.0,
    decay: float = 0.0,
    dtype: str = "float32",
) -> tuple[Any, dict[str, Any]]:
    """Losses and parameters after five steps."""
    random = np.random.default_rng(5)
    images = random.random((60, *network.inputs)).astype(dtype)
    labels = random.integers(0, network.classes, 60)
    parameters = network.initialise(3, dtype)
    own = {f"velocity.{path}": np.zeros_like(p) for path, p in parameters.items()}
    slots = own if momentum else {}
    device = Device("compiled", threads=threads)
    order = random.integers(0, 60, (5, batch))
    if loop:
        made = training_loop(network, device, dtype)
        assert isinstance(made, DenseLoop)
        arrays = list(parameters.values()), list(slots.values())
        losses = made(*arrays, images, labels, order, 0.3, momentum, decay)
        return losses, parameters | slots
    step = Step(network, batch, device, sgd(momentum, decay), dtype)
    with step.without_loop():
        losses = step.run(parameters, slots, images, labels, order, rate=0.3)
    return losses, parameters | slots


@given(
    widths=some.lists(some.integers(1, 200), min_size=3, max_size=3),
    activation=some.sampled_from(["sigmoid", "tanh", "relu"]),
    batch=some.integers(1, 70),
    threads=some.integers(1, 3),
    how=some.sampled_from([(0.0, 0.0), (0.0, 0.01), (0.9, 0.0), (0.9, 0.01)]),
    dtype=some.sampled_from(["float32", "float64"]),
)
@pytest.mark.slow
def test_loop_equals_instruction_by_instruction(
    widths: list[int],
    activation: str,
    batch: int,
    threads: int,
    how: tuple[float, float],
    dtype: str,
) -> None:
    network = networks.mlp(widths, activation=activation)
    found, expected = (
        trained(network, batch, loop, threads, *how, dtype=dtype) for loop in (True, False)
    )
    near = TOLERANCE[dtype]
    np.testing.assert_allclose(found[0], expected[0], rtol=near, atol=near)
    for path, value in expected[1].items():
        np.testing.assert_allclose(found[1][path], value, rtol=near, atol=near, err_msg=path)


def test_activations_may_differ_from_layer_to_layer() -> None:
    found, expected = (trained(EVERY_ACTIVATION, 13, loop) for loop in (True, False))
    for path, value in expected[1].items():
        np.testing.assert_allclose(found[1][path], value, rtol=1e-4, atol=1e-6, err_msg=path)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_threads_give_the_same_bits(threads: int) -> None:
    network = networks.mlp([50, 120, 90, 10])
    first = trained(network, 64, loop=True, threads=threads)
    for _ in range(3):
        again = trained(network, 64, loop=True, threads=threads)
        assert np.array_equal(first[0], again[0])
        assert all(np.array_equal(first[1][path], again[1][path]) for path in first[1])


@pytest.mark.parametrize(
    "layers",
    [
        [Flatten(), Dense(5), ReLU(), Dropout(0.5), Dense(3)],
        [Flatten(), Dense(5), ReLU(), ReLU(), Dense(3)],
        [Flatten(), Sigmoid(), Dense(3)],
        [Flatten(), Dense(5), Softmax(), Dense(3)],
    ],
)
def test_anything_else_is_left_to_others(layers: list[Any]) -> None:
    loop = training_loop(Sequential(layers, (2, 3)), Device("compiled"), "float32")
    assert not isinstance(loop, DenseLoop)


def test_wrong_labels_are_refused_before_anything_moves() -> None:
    images, labels = np.ones((8, 2, 3), np.float32), np.array([0, 1, 2, 0, 1, 3, 0, 1])
    parameters = EVERY_ACTIVATION.initialise(1)
    before = {path: p.copy() for path, p in parameters.items()}
    with pytest.raises(ShapeError, match="labels from 0 to 2; got 3"):
        Step(EVERY_ACTIVATION, 4, Device("compiled")).run(
            parameters, {}, images, labels, np.arange(8).reshape(2, 4), 0.1
        )
    assert all(np.array_equal(before[path], parameters[path]) for path in before)
