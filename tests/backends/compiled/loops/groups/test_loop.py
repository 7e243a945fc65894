"""Training in one loop over groups of images: the same as in NumPy, and bit for bit again."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from recipes import sgd

from pareo import Device
from pareo.backends.compiled.loops.groups import costs
from pareo.backends.compiled.loops.groups.loop import GroupLoop
from pareo.backends.compiled.runtime import registers
from pareo.nn import (
    GELU,
    Add,
    Append,
    Auxiliary,
    AveragePool,
    BatchNorm,
    Branches,
    Conv,
    Dense,
    Flatten,
    Gate,
    GlobalAveragePool,
    LayerNorm,
    LeakyReLU,
    Lrn,
    MaxPool,
    Normalise,
    ReLU,
    Residual,
    Scale,
    Sequential,
    Sigmoid,
    SiLU,
    Subsample,
    Tanh,
    networks,
)
from pareo.training.optimizers import SGD, Adam
from pareo.training.recipe import Recipe
from pareo.training.step import Step, one_image_program


def _inception() -> Branches:
    """Four branches of very few channels."""
    return Branches(
        [Conv(3, 1), ReLU()],
        [Conv(2, 1), ReLU(), Conv(3, 3, padding=1), ReLU()],
        [Conv(1, 1), BatchNorm(), ReLU(), Conv(2, 3, padding=1), ReLU()],
        [MaxPool(3, 1, 1), Conv(1, 1), ReLU()],
    )


NETWORKS = {
    "lenet5": networks.lenet5(),
    "stride, padding and pooling that overlaps": Sequential(
        [
            Conv(7, (3, 2), stride=(2, 1), padding=(1, 0)),
            ReLU(),
            MaxPool(3, stride=2, padding=1),
            Conv(5, 3, stride=2, padding=1),
            Tanh(),
            Flatten(),
            Dense(4),
        ],
        (2, 9, 11),
    ),
    "residual and concatenation": Sequential(
        [
            Conv(4, 3, padding=1),
            Residual(Sequential([GELU(), Conv(4, 3, padding=1), LeakyReLU()])),
            MaxPool(2),
            Append(Sequential([Conv(2, 1), SiLU()])),
            GlobalAveragePool(),
            Flatten(),
            Dense(5),
        ],
        (3, 7, 6),
    ),
    "numbers for each channel, and biases with one gradient": Sequential(
        [
            Normalise((0.1, 0.5), (0.7, 1.3)),
            Add([Conv(3, 3, padding=1)], [Conv(3, 1)]),
            ReLU(),
            Flatten(),
            Dense(4),
        ],
        (2, 5, 6),
    ),
    "batch norm of images, in branches and in a residual block": Sequential(
        [
            BatchNorm(),
            Residual(
                [Conv(4, 3, padding=1), BatchNorm(), ReLU(), Conv(4, 3, padding=1), BatchNorm()],
                [Conv(4, 1)],
                GELU(),
            ),
            Branches([Conv(3, 1, bias=False), BatchNorm()], [Conv(2, 3, padding=1), BatchNorm()]),
            MaxPool(2),
            Flatten(),
            Dense(5),
        ],
        (2, 9, 6),
    ),
    "filters in groups, dilation, and means past the edge": Sequential(
        [
            Conv(4, 3, groups=2, padding=1),
            Subsample(2, 2),
            Conv(8, 3, groups=4, padding=2, dilation=2),
            AveragePool(3, 2, padding=1),
            Tanh(),
            Conv(6, 2, stride=2, groups=2, dilation=2, padding=1),
            Flatten(),
            Dense(3),
        ],
        (2, 10, 9),
    ),
    "other normalisations and factors": Sequential(
        [
            Conv(7, 3),
            Lrn(3, 0.1, 0.6, 2.0),
            Conv(8, 2, padding=1),
            LayerNorm(1),
            Scale(),
            Gate([GlobalAveragePool(), Conv(3, 1), ReLU(), Conv(8, 1), Sigmoid()]),
            Flatten(),
            Dense(6),
            LayerNorm(),
            Dense(3),
        ],
        (2, 7, 8),
    ),
    "few channels in many instructions": Sequential(
        [
            Conv(5, 3, padding=1, bias=False),
            BatchNorm(),
            ReLU(),
            *[_inception() for _ in range(3)],
            GlobalAveragePool(),
            Flatten(),
            Dense(4),
        ],
        (2, 6, 5),
    ),
}
NORMALISED = "batch norm of images, in branches and in a residual block"
LONG = (  # to compile
    NORMALISED,
    "other normalisations and factors",
    "numbers for each channel, and biases with one gradient",
    "few channels in many instructions",
)
SMALL = "stride, padding and pooling that overlaps"


def data(network: Sequential, count: int = 60) -> tuple[Any, Any]:
    random = np.random.default_rng(5)
    images = random.random((count, *network.inputs)).astype(np.float32)
    return images, random.integers(0, network.classes, count)


def trained(
    network: Sequential, batch: int, device: str, threads: int = 2, momentum: float = 0.0
) -> tuple[Any, dict[str, Any]]:
    """Losses and parameters after a few steps."""
    images, labels = data(network)
    parameters = network.initialise(3)
    trained = {path: p for path, p in parameters.items() if path not in network.state}
    own = {f"velocity.{path}": np.zeros_like(p) for path, p in trained.items()}
    slots = own if momentum else {}
    recipe = sgd(momentum, 0.01 if momentum else 0.0)
    step = Step(network, batch, Device(device, threads=threads), recipe)
    assert isinstance(step._loop, GroupLoop) == (device == "compiled")
    order = np.random.default_rng(6).integers(0, len(images), (4, batch))
    losses = step.run(parameters, slots, images, labels, order, rate=0.1)
    return losses, parameters | slots


def test_workers_without_a_group_are_part_of_the_estimate() -> None:
    """One image forms one group, but all threads share its instructions."""
    network = NETWORKS[SMALL]
    one, two = (Step(network, 1, Device("compiled", threads=n))._loop for n in (1, 2))
    assert isinstance(one, GroupLoop)
    assert isinstance(two, GroupLoop)
    assert two.split(1) == replace(one.split(1), threads=2)
    alone, shared = (costs.estimate(one.program, 1, loop.split(1)) for loop in (one, two))
    assert shared.in_groups == alone.in_groups
    calls = costs.RATES.call * sum(not i.is_view for i in one.program.instructions)
    work = alone.by_instructions - calls
    assert work > 0
    assert shared.by_instructions == pytest.approx(calls + work / 2)
    many = 64 * registers.LANES
    assert one.split(many).waste == pytest.approx(1)
    assert two.split(many).workers == 2
    assert 0.5 <= two.split(many).waste < 1


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in NETWORKS]
)
@pytest.mark.parametrize(
    ("batch", "threads", "momentum"),
    [(13, 2, 0.9), pytest.param(24, 1, 0.0, marks=pytest.mark.slow)],
)
def test_loop_equals_numpy(name: str, batch: int, threads: int, momentum: float) -> None:
    found = trained(NETWORKS[name], batch, "compiled", threads, momentum)
    expected = trained(NETWORKS[name], batch, "vectorized", threads, momentum)
    # float32 in another order, over four steps.
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)
    for path, value in expected[1].items():
        np.testing.assert_allclose(found[1][path], value, rtol=1e-4, atol=1e-5, err_msg=path)


@pytest.mark.parametrize("name", [SMALL, pytest.param(NORMALISED, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("batch", "threads", "lanes"), [(1, 2, 1), (2, 2, 1), (5, 2, 1), (11, 1, 4)]
)
def test_small_batches_have_smaller_groups(name: str, batch: int, threads: int, lanes: int) -> None:
    """The images that fill up a group must not count."""
    loop = Step(NETWORKS[name], batch, Device("compiled", threads=threads))._loop
    assert isinstance(loop, GroupLoop)
    if registers.LANES == 4:
        assert loop._lanes(batch) == (lanes, min(batch, threads))
    found = trained(NETWORKS[name], batch, "compiled", threads)
    expected = trained(NETWORKS[name], batch, "vectorized", threads)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)
    for path, value in expected[1].items():
        np.testing.assert_allclose(found[1][path], value, rtol=1e-4, atol=1e-5, err_msg=path)


@pytest.mark.skipif(not registers.HAS_AVX512, reason="the sizes of groups are AVX-512's")
def test_few_images_lie_side_by_side_if_they_fit_into_a_cache() -> None:
    """Eight of LeNet-5 are faster on one core than four alone on each of two."""
    loop = Step(networks.lenet5(), 8, Device("compiled", threads=2))._loop
    assert isinstance(loop, GroupLoop)
    assert loop._lanes(2) == (1, 2)
    assert loop._lanes(8) == (8, 1)
    assert loop._lanes(16) == (8, 2)
    assert loop._lanes(32) == (16, 2)


def test_a_step_of_some_microseconds_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where sharing takes as long as eight groups, 64 groups are shared, and two are not."""
    loop = Step(NETWORKS[SMALL], 8, Device("compiled", threads=2))._loop
    assert isinstance(loop, GroupLoop)
    shared = 8 * registers.LANES * loop._image_seconds
    rates = replace(costs.RATES, shared=shared)
    monkeypatch.setattr(costs, "RATES", rates)
    assert loop._lanes(2 * registers.LANES)[1] == 1
    assert loop._lanes(64 * registers.LANES)[1] == 2


@pytest.mark.parametrize(
    ("image", "layer"),
    [
        ((2, 5, 4), Conv(8, (3, 2), stride=(1, 3), padding=(2, 1))),
        pytest.param((3, 7, 6), Conv(9, 3, stride=2, padding=1), marks=pytest.mark.slow),
        pytest.param((4, 1, 1), Conv(17, 3, padding=1), marks=pytest.mark.slow),
        # The last columns are in no window.
        pytest.param((2, 9, 9), Conv(8, 2, stride=4, dilation=3), marks=pytest.mark.slow),
    ],
)
def test_single_images_with_few_places_are_rows_of_a_matrix(
    image: tuple[int, ...], layer: Conv
) -> None:
    first = Conv(image[0], 1)  # so that the layer has a gradient of its images
    network = Sequential([first, Tanh(), layer, Tanh(), Flatten(), Dense(3)], image)
    step = Step(network, 2, Device("compiled", threads=2))
    assert isinstance(step._loop, GroupLoop)
    if registers.LANES > 4:
        assert "columns.scatter" in step._loop.source(1)
    found, expected = (trained(network, 2, device, 2) for device in ("compiled", "vectorized"))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)
    for path, value in expected[1].items():
        np.testing.assert_allclose(found[1][path], value, rtol=1e-4, atol=1e-5, err_msg=path)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_threads_give_the_same_bits(threads: int) -> None:
    first = trained(NETWORKS[SMALL], 32, "compiled", threads)
    for _ in range(3):
        again = trained(NETWORKS[SMALL], 32, "compiled", threads)
        assert np.array_equal(first[0], again[0])
        assert all(np.array_equal(first[1][path], again[1][path]) for path in first[1])


@pytest.mark.parametrize("batch", [4096, 4097])
def test_a_long_sum_of_gradients_keeps_its_digits(batch: int) -> None:
    """Of equal images, whose roundings would all go one way, the mean gradient is that of one."""
    network = NETWORKS[SMALL]
    images, labels = data(network, 1)
    moved = {}
    for size in (8, batch):
        parameters = network.initialise(3)
        step = Step(network, size, Device("compiled", threads=1))
        step.run(parameters, {}, images, labels, np.zeros((1, size), np.int64), rate=10.0)
        moved[size] = {path: parameters[path] - p for path, p in network.initialise(3).items()}
    for path, expected in moved[8].items():
        off = np.linalg.norm(moved[batch][path] - expected) / np.linalg.norm(expected)
        assert off < 2e-5, path


@pytest.mark.slow
def test_batch_norm_of_large_values_keeps_its_digits() -> None:
    """The variance of values around 1000, as it moves the state of a layer."""
    network = Sequential([BatchNorm(), Conv(2, 3), ReLU(), Flatten(), Dense(3)], (2, 6, 5))
    images, labels = data(network, 21)
    images += 1000
    parameters = network.initialise(3)
    step = Step(network, 21, Device("compiled", threads=2))
    assert isinstance(step._loop, GroupLoop)
    step.run(parameters, {}, images, labels, np.arange(21)[None], rate=0.1)
    wide = images.astype(np.float64)
    mean, variance = wide.mean((0, 2, 3)), wide.var((0, 2, 3), ddof=1)
    # The state itself is in float32.
    np.testing.assert_allclose(parameters["0.mean"], 0.1 * mean, rtol=1e-6)
    np.testing.assert_allclose(parameters["0.variance"], 0.9 + 0.1 * variance, rtol=1e-6)


def test_many_instructions_with_few_channels_are_one_loop() -> None:
    """Each would take longer to begin than to run."""
    network = NETWORKS["few channels in many instructions"]
    assert len(one_image_program(network, "float32")[0].instructions) > 200
    for batch in (1, 16):
        assert Step(network, batch, Device("compiled", threads=2)).loops


@pytest.mark.smoke
def test_explain_names_the_way_and_the_reason() -> None:
    device = Device("compiled")
    step = Step(NETWORKS["lenet5"], 8, device)
    assert step.explain().startswith("in one loop: estimated ")
    with step.without_loop():
        assert step.explain().startswith("instruction by instruction")
    adam = Step(NETWORKS["lenet5"], 8, device, Recipe(Adam()))
    assert adam.explain() == (
        "instruction by instruction: loops are for plain SGD on the cross-entropy"
    )
    assert "for networks of this shape" in Step(networks.papers_cnn(), 8, device).explain()


UNSUITED = {
    "a loss with no gradient or several": [
        Conv(3, 3), Auxiliary(Sequential([Flatten(), Dense(4)])), ReLU(), Flatten(), Dense(4),
    ],
    # Winograd's algorithm needs a third of the products there.
    "us instruction by instruction": [
        Conv(64, 3, padding=1), ReLU(), Conv(64, 3, padding=1), ReLU(), Conv(64, 3), Sigmoid(),
        Flatten(), Dense(4),
    ],
}  # fmt: skip


@pytest.mark.parametrize("reason", UNSUITED)
def test_other_networks_run_instruction_by_instruction(reason: str) -> None:
    step = Step(Sequential(UNSUITED[reason], (4, 12, 12)), 8, Device("compiled"))
    assert not step.loops
    assert reason in step.explain()


def test_float64_and_nesterov_have_no_loop() -> None:
    network, device = NETWORKS[SMALL], Device("compiled")
    assert not Step(network, 8, device, dtype="float64").loops
    assert not Step(network, 8, device, Recipe(SGD(0.9, nesterov=True))).loops
