"""Layers and networks: shapes, parameters, initial weights, the summary, and what is refused."""

from typing import Any

import numpy as np
import pytest

from pareo import Device, grad, nn, op
from pareo.errors import PareoError, ShapeError
from pareo.nn import networks
from pareo.nn.containers import Branches
from pareo.nn.network import Sequential

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize(
    ("layer", "shape", "out", "parameters"),
    [
        (nn.Conv(6, 5), (1, 28, 28), (6, 24, 24), 156),
        (nn.Conv(64, 11, 4, 2), (3, 224, 224), (64, 55, 55), 23_296),
        (nn.Conv(8, (3, 1), (2, 1), padding=1, groups=2), (4, 9, 9), (8, 5, 11), 56),
        (nn.Subsample(4, 4), (6, 24, 24), (6, 6, 6), 17),
        (nn.MaxPool(3, 2), (4, 15, 15), (4, 7, 7), 0),
        (nn.MaxPool(3, 2, ceil=True), (4, 16, 16), (4, 8, 8), 0),
        (nn.AveragePool(7), (4, 7, 7), (4, 1, 1), 0),
        (nn.Lrn(), (4, 7, 7), (4, 7, 7), 0),
        (nn.Dropout(0.5), (12,), (12,), 0),
        (nn.Dense(10), (216,), (10,), 2_170),
        (nn.Flatten(), (6, 6, 6), (216,), 0),
        (nn.Sigmoid(), (6, 6), (6, 6), 0),
        (nn.Tanh(), (6,), (6,), 0),
        (nn.ReLU(), (6,), (6,), 0),
        (nn.Softmax(), (6,), (6,), 0),
        (nn.Softmax(2), (6, 3), (6, 3), 0),
        (nn.LogSoftmax(3), (6, 3, 2), (6, 3, 2), 0),
        (nn.Affine(-2.0, 1.0), (6, 3), (6, 3), 0),
        (nn.GroupNorm(2), (6, 3, 2), (6, 3, 2), 12),
        (nn.GroupNorm(3, trained=False), (6,), (6,), 0),
        (Branches([nn.Conv(2, 1)], [nn.Conv(3, 3, 1, 1)]), (4, 5, 5), (5, 5, 5), 121),
    ],
    ids=lambda value: value.label if isinstance(value, nn.Layer) else None,
)
def test_shapes_and_parameters(
    layer: nn.Layer, shape: tuple[int, ...], out: tuple[int, ...], parameters: int
) -> None:
    network = Sequential([layer], shape)
    assert layer.output(shape) == out
    assert network.count() == parameters
    weights = network.initialise(seed=0)
    assert sum(a.size for a in weights.values()) == parameters
    seeds = range(layer.seeds())
    images = np.ones((2, *shape), np.float32)
    assert network(weights, images, training=True, seeds=seeds).shape == (2, *out)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Sequential([nn.Dense(2)], (2, 3, 4)), "Dense expects flat inputs"),
        (lambda: Sequential([nn.Conv(2, 3)], (9,)), r"Conv expects images \(C, H, W\)"),
        (lambda: Sequential([nn.Conv(2, 9)], (1, 4, 4)).output((1, 4, 4)), "Conv"),
        (lambda: Sequential([nn.Conv(3, 1, groups=2)], (4, 2, 2)), "groups"),
        (lambda: Sequential([nn.MaxPool(2)], (9,)).classes, "MaxPool expects images"),
        (lambda: Sequential([nn.GroupNorm(4)], (6, 3, 3)).classes, "that 4 groups divide"),
        (lambda: Sequential([nn.Softmax(2)], (6,)).classes, "Softmax expects an axis"),
        (lambda: Sequential(["dense"], (9,)), "Sequential expects layers"),
        (lambda: Sequential([nn.Dense(2)]).inputs, r"no input_shape: .*input_shape=\(1, 28, 28\)"),
        (lambda: Branches([nn.Conv(1, 1)], [nn.Conv(1, 3)]).output((1, 4, 4)), "Branches"),
        (lambda: Sequential([nn.Dense(2, start="x")], (2,)).initialise(), "initialiser"),
        (lambda: networks.mlp("huge"), "mlp expects small, medium, big"),
        (lambda: networks.mlp([784]), "at least two sizes"),
        (lambda: networks.mlp([4, 2], activation="step"), "activation"),
        (lambda: networks.alexnet("2012"), "alexnet expects"),
        (lambda: networks.by_name("resnet"), "a network is one of papers-cnn"),
    ],
)
def test_what_does_not_fit_is_said(make: Any, said: str) -> None:
    with pytest.raises(PareoError, match=said) as caught:
        make()
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ShapeError)


def test_parameter_counts_are_the_published_ones() -> None:
    counts = {name: networks.by_name(name).count() for name in networks.NETWORKS}
    assert counts["papers-cnn"] == 2_343
    assert counts["mlp-small"] == 233_054
    assert counts["mlp-medium"] == 619_762
    assert counts["mlp-big"] == 1_854_170
    assert counts["alexnet"] == 61_100_840  # torchvision's alexnet
    assert counts["alexnet-original"] == 60_965_224  # Caffe's bvlc_alexnet
    assert counts["googlenet"] == 6_998_552  # Caffe's bvlc_googlenet without auxiliary heads
    assert counts["googlenet-auxiliary"] == 13_378_280  # and with them


def test_initial_weights_depend_on_the_seed_and_the_path_alone() -> None:
    deep = networks.mlp([4, 3, 3, 2])
    one, two, other = deep.initialise(0), deep.initialise(0), deep.initialise(1)
    for path, array in one.items():
        assert np.array_equal(array, two[path])
        assert path.endswith(".b") or not np.array_equal(array, other[path])
    # Layer 1 of a longer network starts from the same weights.
    assert np.array_equal(one["1.w"], networks.mlp([4, 3, 2]).initialise(0)["1.w"])
    assert deep.initialise(0, "float64")["1.w"].dtype == np.float64


@pytest.mark.parametrize(
    ("start", "deviation"), [("he", (2 / 400) ** 0.5), ("lecun", (1 / 400) ** 0.5),
                             ("glorot", (2 / 1000) ** 0.5), ("fan_in", (1 / 1200) ** 0.5),
                             ("he_out", (2 / 600) ** 0.5), ("he_uniform", (2 / 400) ** 0.5),
                             ("fan_out_uniform", (1 / 1800) ** 0.5), ("normal_0.02", 0.02),
                             ("zeros", 0.0)]
)  # fmt: skip
def test_initial_weights_have_the_spread_of_their_name(start: str, deviation: float) -> None:
    weights = Sequential([nn.Dense(600, start=start)], (400,)).initialise(0)["0.w"]
    # 240,000 draws know their deviation to about 0.2 %; the seed is fixed.
    assert weights.std() == pytest.approx(deviation, rel=0.01)
    assert weights.mean() == pytest.approx(0, abs=0.001)


def test_fan_out_of_filters_counts_all_groups() -> None:
    """As in PyTorch's kaiming_normal_, which does not know of groups."""
    network = Sequential([nn.Conv(512, 3, groups=512, start="he_out")], (512, 5, 5))
    # 4,608 draws know their deviation to about 1 %.
    deviation = network.initialise(0)["0.w"].std()
    assert deviation == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.05)


def test_layers_are_values() -> None:
    assert networks.papers_cnn() == networks.papers_cnn()
    assert nn.Conv(6, 5) != nn.Conv(6, 3)
    with pytest.raises(AttributeError):
        nn.Conv(6, 5).filters = 7  # type: ignore[misc]


def test_the_summary_adds_up() -> None:
    lines = networks.papers_cnn().summary().splitlines()
    assert lines[0].split() == ["layer", "output", "parameters", "FLOPs", "activation"]
    assert len(lines) == 1 + 6 + 1
    assert "Conv 6 @ 5x5" in lines[1]
    assert "(6, 24, 24)" in lines[1]
    assert lines[-1].split()[:2] == ["total", "2,343"]


def test_the_summary_shows_branches() -> None:
    text = networks.googlenet().summary()
    assert "Branches" in text
    assert "\n  1.2 Conv 128 @ 3x3 " in text
    assert "6,998,552" in text


def test_the_summary_indents_layers_below_their_containers() -> None:
    lines = networks.resnet_small(8).summary().splitlines()
    names = [line.split("  (")[0].rstrip() for line in lines]
    at = names.index("layer2 Sequential")
    assert names[at + 1] == "  0 Residual"
    assert names[at + 2].startswith("    conv1 Conv 32 @ 3x3")
    assert "    downsample Sequential" in names[at:]
    assert lines[-1].split()[:2] == ["total", "78,042"]
    # The columns of outputs and numbers begin at one place in every row.
    assert {line.index("(") for line in lines if "(" in line} == {lines[0].index("output")}


@pytest.mark.parametrize("pixels", [1, 2, 5, 7, 8, 14, 17])
@pytest.mark.parametrize("size", [3, 7])
def test_adaptive_pooling_is_that_of_torch(pixels: int, size: int) -> None:
    functional = pytest.importorskip("torch.nn.functional")
    import torch

    x = np.random.default_rng(0).standard_normal((2, 3, pixels, 2 * pixels + 1))
    leaf = torch.tensor(x, requires_grad=True)
    expected = functional.adaptive_avg_pool2d(leaf, size)
    layer = nn.AdaptiveAveragePool(size)
    assert layer.output((3, pixels, 2 * pixels + 1)) == (3, size, size)
    weights = np.random.default_rng(1).standard_normal(expected.shape)
    (expected * torch.tensor(weights)).sum().backward()
    network = Sequential([layer], x.shape[1:])
    with Device("vectorized"):
        # Means of numbers of size 1, some of which cancel.
        np.testing.assert_allclose(network({}, x), expected.detach().numpy(), atol=1e-15)
        found = grad(lambda x: op.sum(op.hadamard(network({}, x), weights)))(x)
    np.testing.assert_allclose(found, leaf.grad.numpy(), rtol=1e-11, atol=1e-14)


def test_named_branches_need_no_number() -> None:
    branches = Branches({"left": nn.Dense(2)}, {"right": nn.Dense(3)}, [nn.Dense(1)])
    network = Sequential([("", branches)], (4,))
    assert sorted(network.initialise()) == [
        "2.0.b", "2.0.w", "left.b", "left.w", "right.b", "right.w",
    ]  # fmt: skip
    assert network(network.initialise(), np.ones((2, 4), np.float32)).shape == (2, 6)
    with pytest.raises(ShapeError, match=r"two parameters of a network have the path 0\.left"):
        Sequential([Branches({"left": nn.Dense(2)}, {"left": nn.Dense(3)})], (4,))


@pytest.mark.parametrize("name", [n for n in networks.SIZED if n not in ("alexnet-original",)])
def test_networks_take_images_of_any_size_and_channels(name: str) -> None:
    size = 64 if name.startswith(("alexnet", "googlenet", "squeezenet")) else 32
    network = networks.sized(name, (1, size, size), 7)
    assert network.inputs == (1, size, size)
    assert network.output(network.inputs) == (7,)
    assert network.name == name
