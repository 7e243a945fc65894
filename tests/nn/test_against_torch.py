"""Losses and every gradient equal PyTorch's, from the same weights and batches, on each device."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from devices import CUDA, DEVICES
from torch_network import forward, loss_and_gradients

from pareo import Device, Spec, nn, to_device, to_host, trace, value_and_grad
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.training import Evaluator
from pareo.training.step import dropout_seeds

# The large networks at the smallest size whose layers all have something to do, and ten classes:
# every kind of layer and every path through it is there, the weights are not all of 60 million.
NETWORKS: dict[str, Callable[[], Sequential]] = {
    "papers-cnn": networks.papers_cnn,
    "mlp-small": lambda: networks.mlp("small"),
    "mlp-medium": lambda: networks.mlp("medium"),
    "mlp-big": lambda: networks.mlp("big"),
    "alexnet": lambda: networks.alexnet(size=64, classes=10),
    "alexnet-original": lambda: networks.alexnet("original", size=64, classes=10),
    "googlenet": lambda: networks.googlenet(size=64, classes=10),
    "googlenet-auxiliary": lambda: networks.googlenet(size=64, classes=10, auxiliary=True),
}
LARGE = ("alexnet", "alexnet-original", "googlenet", "googlenet-auxiliary")

# What an error may be, beside the size of the whole gradient. In float64 the sums, of up to 10^4
# terms, are rounded at 1e-16 each and added in another order than PyTorch's, through 60 layers:
# 1e-11 is ten times what that makes at worst, and a wrong formula makes 1e-2 or more.
EXACT = 1e-11
# In float32 the same sums lose 1e-7 each, and a rounded input can fall on the other side of a ReLU
# or another element can be a window's largest: then a few terms of the gradient go elsewhere.
SINGLE = 2e-3


def batch_for(network: Sequential, size: int, dtype: str) -> tuple[Any, Any, Any, list[int]]:
    random = np.random.default_rng(5)
    images = random.random((size, *network.inputs)).astype(dtype)
    labels = np.arange(size) % network.classes
    parameters = network.initialise(seed=1, dtype=dtype)
    for path, parameter in parameters.items():
        if path.endswith(".b"):  # biases start at 0, where a mistake would not show
            parameter += random.uniform(0.01, 0.1, parameter.shape).astype(dtype)
    return parameters, images, labels, dropout_seeds(3, 0, network.seeds())


def ours(network: Sequential, device: str, parameters: Any, x: Any, labels: Any, seeds: Any) -> Any:
    """Loss and gradients as a compiled program gives them, which is what training runs."""
    numbers = tuple(np.asarray(seed, np.int64) for seed in seeds)
    program = trace(value_and_grad(network.loss), parameters, x, labels, numbers)
    with Device(device):
        run = program.compile()
        loss, gradients = to_host(run(*to_device((parameters, x, labels, numbers))))
    return float(loss), gradients


def check(network: Sequential, device: str, size: int, dtype: str, tolerance: float) -> None:
    parameters, images, labels, seeds = batch_for(network, size, dtype)
    loss, gradients = ours(network, device, parameters, images, labels, seeds)
    exact = {path: a.astype(np.float64) for path, a in parameters.items()}
    expected_loss, expected = loss_and_gradients(
        network, exact, images.astype(np.float64), labels, seeds
    )
    assert loss == pytest.approx(expected_loss, rel=tolerance)
    assert list(gradients) == list(expected)
    for path, gradient in expected.items():
        found = gradients[path]
        assert found.shape == gradient.shape
        assert np.abs(gradient).max() > 0, f"{path} learns nothing"
        error = np.linalg.norm(found - gradient) / np.linalg.norm(gradient)
        assert error < tolerance, f"{path} differs by {error:.1e}"


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("device", ["vectorized", "compiled", CUDA])
def test_losses_and_gradients_in_float64(name: str, device: str) -> None:
    check(NETWORKS[name](), device, 2 if name in LARGE else 16, "float64", EXACT)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("device", ["compiled", CUDA])
def test_losses_and_gradients_in_float32(name: str, device: str) -> None:
    """Where the float32 code is not the float64 code."""
    check(NETWORKS[name](), device, 2 if name in LARGE else 16, "float32", SINGLE)


# `sequential` is plain Python, a microsecond for each term: every network in miniature, with all
# of its kinds of layers.
SMALL: dict[str, Callable[[], Sequential]] = {
    "papers-cnn": networks.papers_cnn,
    "mlp": lambda: networks.mlp([12, 8, 8, 8, 10]),
    "alexnet": lambda: Sequential(
        [
            nn.Conv(3, 5, 2, 2), nn.ReLU(), nn.MaxPool(3, 2),
            nn.Conv(4, 3, 1, 1), nn.ReLU(), nn.MaxPool(3, 2),
            nn.Flatten(), nn.Dropout(0.5), nn.Dense(8), nn.ReLU(), nn.Dense(10),
        ],
        (3, 16, 16),
    ),
    "alexnet-original": lambda: Sequential(
        [
            nn.Conv(4, 5, 2, 2), nn.ReLU(), nn.Lrn(), nn.MaxPool(3, 2),
            nn.Conv(4, 3, 1, 1, groups=2), nn.ReLU(), nn.Flatten(), nn.Dense(10),
        ],
        (3, 12, 12),
    ),
    "googlenet": lambda: Sequential(
        [
            nn.Conv(4, 3, 2, 1), nn.ReLU(), nn.MaxPool(3, 2, ceil=True), nn.Lrn(),
            nn.Branches(
                [nn.Conv(4, 1), nn.ReLU()],
                [nn.Conv(4, 1), nn.ReLU(), nn.Conv(4, 3, 1, 1), nn.ReLU()],
                [nn.Conv(4, 1), nn.ReLU(), nn.Conv(4, 5, 1, 2), nn.ReLU()],
                [nn.MaxPool(3, 1, 1), nn.Conv(4, 1), nn.ReLU()],
            ),
            nn.AveragePool(3), nn.Flatten(), nn.Dropout(0.4), nn.Dense(10),
        ],
        (3, 14, 14),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("device", DEVICES)
def test_small_networks_on_every_device(name: str, device: str) -> None:
    check(SMALL[name](), device, 1 if name == "papers-cnn" else 2, "float64", EXACT)


@pytest.mark.parametrize("device", DEVICES)
def test_tanh_and_softmax_layers(device: str) -> None:
    layers = [nn.Dense(6), nn.Tanh(), nn.Dense(4), nn.Softmax()]
    check(Sequential(layers, (5,)), device, 3, "float64", EXACT)


@pytest.mark.parametrize("name", ["papers-cnn", "mlp-small", "googlenet"])
def test_outputs_without_training(name: str) -> None:
    network = NETWORKS[name]()
    parameters, images, _, _ = batch_for(network, 3, "float64")
    import torch

    tensors = {path: torch.from_numpy(a) for path, a in parameters.items()}
    expected = forward(network, tensors, torch.from_numpy(images)).numpy()
    evaluator = Evaluator(network, Device("vectorized"), batch=2, dtype="float64")
    np.testing.assert_allclose(evaluator.logits(parameters, images), expected, rtol=1e-9)


def test_a_program_of_symbols_and_a_call_on_arrays_agree() -> None:
    network = networks.papers_cnn()
    parameters, images, _, _ = batch_for(network, 2, "float64")
    program = network.program(batch=2, dtype="float64")
    assert program.specs[program.outputs[0]] == Spec((2, 10), "float64")
    np.testing.assert_allclose(
        program.compile()(parameters, images), network(parameters, images), rtol=1e-12
    )
