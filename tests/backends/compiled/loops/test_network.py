"""Training in one generated loop: the same as instruction by instruction, bit for bit again."""

from typing import Any

import numpy as np
import pytest
from recipes import sgd

from pareo import Device
from pareo.backends.compiled.loops.network import NetworkLoop
from pareo.errors import ShapeError
from pareo.nn import Conv, Dense, Flatten, ReLU, Sequential, Sigmoid, Subsample, Tanh, networks
from pareo.training.step import Step

NETWORKS = {
    "papers_cnn": networks.papers_cnn(),
    "tanh and relu": Sequential(
        [Conv(3, (3, 5)), Tanh(), Subsample((2, 3), stride=(2, 3)), ReLU(), Flatten(), Dense(4)],
        (1, 10, 28),  # 24 pixels a row: whole vectors on every CPU, whole windows of three
    ),
    "relu before a subsampling of its own": Sequential(
        [
            Conv(6, 5),
            ReLU(),
            Subsample(2, stride=2),
            Tanh(),
            Subsample(2, stride=2),
            Flatten(),
            Dense(16),
        ],
        (1, 12, 12),
    ),
    "two dense layers": Sequential(
        [Conv(3, 5), ReLU(), Flatten(), Dense(7), Sigmoid(), Dense(40)], (1, 12, 12)
    ),
}
UNSUITED = {
    "padding": Sequential([Conv(3, 3, padding=1), ReLU(), Flatten(), Dense(4)], (1, 8, 8)),
    "two channels": Sequential([Conv(3, 3), ReLU(), Flatten(), Dense(4)], (2, 10, 10)),
    "overlap": Sequential(
        [Conv(3, 3), ReLU(), Subsample(4, stride=2), Flatten(), Dense(4)], (1, 10, 10)
    ),
    "too many parameters": Sequential(
        [Conv(3, 5), ReLU(), Flatten(), Dense(100), ReLU(), Dense(4)], (1, 16, 16)
    ),
}


def data(network: Sequential, count: int = 60) -> tuple[Any, Any]:
    random = np.random.default_rng(5)
    images = random.random((count, *network.inputs)).astype(np.float32)
    return images, random.integers(0, network.classes, count)


def trained(
    network: Sequential, batch: int, *, loop: bool, threads: int = 2, momentum: float = 0.0
) -> tuple[Any, dict[str, Any]]:
    """Losses and parameters after a few steps."""
    images, labels = data(network)
    parameters = network.initialise(3)
    own = {f"velocity.{path}": np.zeros_like(p) for path, p in parameters.items()}
    slots = own if momentum else {}
    decay = 0.01 if momentum else 0.0
    step = Step(network, batch, Device("compiled", threads=threads), sgd(momentum, decay))
    assert step._loop is not None
    if not loop:
        step._loop = None
    order = np.random.default_rng(6).integers(0, len(images), (5, batch))
    losses = step.run(parameters, slots, images, labels, order, rate=0.3)
    return losses, parameters | slots


@pytest.mark.parametrize(
    "name", [n if n == "papers_cnn" else pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS]
)
@pytest.mark.parametrize(
    ("batch", "momentum"),
    [
        pytest.param(1, 0.0, marks=pytest.mark.slow),
        pytest.param(13, 0.0, marks=pytest.mark.slow),
        (13, 0.9),
    ],
)
def test_loop_equals_instruction_by_instruction(name: str, batch: int, momentum: float) -> None:
    found = trained(NETWORKS[name], batch, loop=True, momentum=momentum)
    expected = trained(NETWORKS[name], batch, loop=False, momentum=momentum)
    # float32 in another order, over five steps.
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)
    for path, value in expected[1].items():
        np.testing.assert_allclose(found[1][path], value, rtol=1e-4, atol=1e-6, err_msg=path)


@pytest.mark.parametrize("name", NETWORKS)
def test_loop_equals_numpy(name: str) -> None:
    """Instruction by instruction the compiled device shares tiles with its loop; NumPy does not."""
    network = NETWORKS[name]
    losses, parameters = trained(network, 13, loop=True)
    images, labels = data(network)
    expected = network.initialise(3)
    order = np.random.default_rng(6).integers(0, len(images), (5, 13))
    step = Step(network, 13, Device("vectorized"))
    expected_losses = step.run(expected, {}, images, labels, order, rate=0.3)
    # float32 in another order, over five steps.
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5, atol=1e-6)
    for path, value in expected.items():
        np.testing.assert_allclose(parameters[path], value, rtol=1e-4, atol=1e-6, err_msg=path)


@pytest.mark.parametrize("batch", [4096, 4097])
def test_a_long_sum_of_gradients_keeps_its_digits(batch: int) -> None:
    """Of equal images, whose roundings would all go one way, the mean gradient is that of one."""
    network = NETWORKS["papers_cnn"]
    images, labels = data(network, 1)
    moved = {}
    for size in (1, batch):
        parameters = network.initialise(3)
        step = Step(network, size, Device("compiled", threads=1))
        step.run(parameters, {}, images, labels, np.zeros((1, size), np.int64), rate=10.0)
        moved[size] = {path: parameters[path] - p for path, p in network.initialise(3).items()}
    for path, expected in moved[1].items():
        off = np.linalg.norm(moved[batch][path] - expected) / np.linalg.norm(expected)
        assert off < 2e-5, path  # as one sum of 4096 terms it was up to 2.5e-4


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_threads_give_the_same_bits(threads: int) -> None:
    first = trained(NETWORKS["papers_cnn"], 16, loop=True, threads=threads)
    for _ in range(3):
        again = trained(NETWORKS["papers_cnn"], 16, loop=True, threads=threads)
        assert np.array_equal(first[0], again[0])
        assert all(np.array_equal(first[1][path], again[1][path]) for path in first[1])


@pytest.mark.smoke
@pytest.mark.parametrize("name", UNSUITED)
def test_what_the_loop_cannot_do_is_left_to_others(name: str) -> None:
    assert not isinstance(Step(UNSUITED[name], 4, Device("compiled"))._loop, NetworkLoop)


def test_float64_and_other_devices_have_no_loop() -> None:
    network = NETWORKS["papers_cnn"]
    assert Step(network, 4, Device("compiled"), dtype="float64")._loop is None
    assert Step(network, 4, Device("vectorized"))._loop is None


@pytest.mark.smoke
def test_wrong_labels_are_refused_before_anything_moves() -> None:
    network = NETWORKS["tanh and relu"]
    images, labels = data(network, 8)
    labels[5] = 4
    parameters = network.initialise(1)
    before = {path: p.copy() for path, p in parameters.items()}
    with pytest.raises(ShapeError, match="labels from 0 to 3; got 4"):
        Step(network, 4, Device("compiled")).run(
            parameters, {}, images, labels, np.arange(8).reshape(2, 4), 0.1
        )
    assert all(np.array_equal(before[path], parameters[path]) for path in before)
