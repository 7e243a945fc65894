"""Sums of many float32 numbers: their error does not grow with their length."""

import tracemalloc
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from devices import CUDA, home, placed

from pareo import Device, Spec, op, trace
from pareo.nn import Dense, Flatten, Sequential
from pareo.program import value_and_grad
from pareo.training.step import Step

every_device = pytest.mark.parametrize("device", ["vectorized", "compiled", CUDA])

# Relative; added one after another in float32, the sums below are off by 1e-4 and more. Up to 256
# numbers may be added that way: 3e-6 of equal ones, whose roundings all go in one direction.
NEAR = 5e-6

SHAPES = [(100_000,), (100_000, 3), (2, 60_000), (400, 2, 500), (9_000, 3, 4), (60_000, 2, 1, 2)]


def layouts(a: Any) -> list[Any]:
    """The same numbers in C order, in Fortran's, and with gaps."""
    return [a, np.asfortranarray(a), np.repeat(a, 2, axis=-1)[..., ::2]]


@pytest.mark.parametrize("shape", SHAPES)
@every_device
def test_sum_and_mean_over_any_axes(shape: tuple[int, ...], device: str) -> None:
    axes = range(len(shape))
    for folded in [which for n in axes for which in combinations(axes, n + 1)]:
        for a in layouts(np.full(shape, 0.1, np.float32)):
            count = np.prod([shape[axis] for axis in folded])
            with Device(device):
                total = home(device, op.sum(placed(device, a), axis=folded))
                mean = home(device, op.mean(placed(device, a), axis=folded, keepdims=True))
            np.testing.assert_allclose(total, count * np.float64(np.float32(0.1)), rtol=NEAR)
            np.testing.assert_allclose(mean, 0.1, rtol=NEAR)


def test_more_ones_than_float32_can_count() -> None:
    """One more than 2**24 is 2**24 again."""
    ones = np.broadcast_to(np.ones((1, 2), np.float32), (20_000_000, 2))
    with Device("vectorized"):
        assert set(op.sum(ones, axis=0)) == {20_000_000}
        assert set(op.mean(ones, axis=0)) == {1}


@every_device
def test_softmax_over_a_long_axis_that_is_not_the_last(device: str) -> None:
    a = np.full((100_000, 2), np.log(0.1), np.float32)
    a[0] = 0  # the largest, so that all others are 0.1 in the sum
    with Device(device):
        chances = home(device, op.softmax(placed(device, a), axis=0))
        logarithms = home(device, op.log_softmax(placed(device, a), axis=0))
    total = 1 + 0.1 * 99_999
    np.testing.assert_allclose(chances[1:], 0.1 / total, rtol=NEAR)
    np.testing.assert_allclose(logarithms[0], -np.log(total), rtol=NEAR)


@pytest.mark.parametrize("name", ["relu", "tanh", "sigmoid"])
@every_device
def test_gradient_of_a_bias_over_many_rows(name: str, device: str) -> None:
    """On `compiled` it comes from one pass with the activation's gradient."""

    def total(x: Any, w: Any, b: Any) -> Any:
        y = getattr(op, name)(op.add_bias(op.dot(x, w), b))
        return op.sum(op.scale(0.1, y))

    x, w, b = (np.full(s, 0.5, np.float32) for s in ((50_000, 1), (1, 3), (3,)))
    run = trace(value_and_grad(total, wrt=(2,)), x, w, b).compile(Device(device))
    _, found = run(*(placed(device, a) for a in (x, w, b)))
    z = 0.75
    slope = {"relu": 1.0, "tanh": 1 - np.tanh(z) ** 2, "sigmoid": np.exp(z) / (1 + np.exp(z)) ** 2}
    expected = 50_000 * np.float64(np.float32(0.1)) * slope[name]
    # The slope itself is rounded, too.
    np.testing.assert_allclose(home(device, found[0]), expected, rtol=NEAR + 1e-6)


# Images, filters and how, for each way of `compiled`; many images, so that those must be added up.
LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "rows": ((40_000, 1, 1, 1), (1, 1, 1, 1), {}),
    "tiles": ((20_000, 1, 2, 8), (3, 1, 1, 1), {}),
    "direct": ((40_000, 1, 1, 1), (1, 1, 1, 1), {"stride": 2}),
    "columns": ((20_000, 3, 1, 1), (33, 3, 1, 1), {}),
    "pixels": ((20_000, 3, 4, 8), (16, 3, 1, 1), {}),
}


@pytest.mark.parametrize("layer", LAYERS)
@every_device
def test_gradient_of_filters_over_many_images(layer: str, device: str) -> None:
    images, filters, how = LAYERS[layer]
    x, w = np.full(images, 0.1, np.float32), np.ones(filters, np.float32)
    with Device(device):
        x, w = placed(device, x), placed(device, w)
        g = op.exp(op.scale(0, op.conv(x, w, **how)))  # ones
        found = op.conv_weight_gradient(x, g, size=filters[2:], **how)
    count = images[0] * g.shape[2] * g.shape[3]
    expected = count * np.float64(np.float32(0.1))
    np.testing.assert_allclose(home(device, found), expected, rtol=NEAR)


def test_bias_of_dense_layers_that_are_trained_from_a_table() -> None:
    """The same image again and again, in one batch; all parameters start from 0."""
    batch = 50_000
    network = Sequential([Flatten(), Dense(3)], (2, 3))
    step = Step(network, batch, Device("compiled"))
    assert step.in_table
    parameters = {path: 0 * p for path, p in network.initialise(0, "float32").items()}
    images, labels = np.zeros((1, 2, 3), np.float32), np.zeros(1, np.int64)
    step.run(parameters, {}, images, labels, np.zeros((1, batch), np.int64), rate=1.0)
    (bias,) = [p for p in parameters.values() if p.shape == (3,)]
    np.testing.assert_allclose(bias, [2 / 3, -1 / 3, -1 / 3], rtol=NEAR)


def test_argmax_over_another_axis_allocates_nothing() -> None:
    """NumPy's would make a copy of all elements."""
    a = np.random.default_rng(0).standard_normal((200, 300, 4), np.float32)
    run = trace(lambda a: op.argmax(a, axis=1), Spec(a.shape)).compile(Device("compiled"))
    assert np.array_equal(run(a), a.argmax(axis=1))
    tracemalloc.start()
    run(a)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < a.nbytes / 20
