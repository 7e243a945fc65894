"""Whole epochs in one launch: kernels compile for every architecture and train correctly."""

import numpy as np
import pytest
from devices import ARCHITECTURES, needs_gpu
from recipes import sgd

import pareo
from pareo import Device, Spec, nn
from pareo.backends.cuda.epoch import loop, tiled
from pareo.backends.cuda.epoch.layers import Dense, UnsupportedNetwork, Windows, layers_of
from pareo.backends.cuda.epoch.source import PerImageKernel
from pareo.backends.cuda.runtime import source
from pareo.errors import ShapeError
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.program import trace, value_and_grad
from pareo.program.compiler import prepared
from pareo.program.passes import remove_common, remove_dead
from pareo.training.step import Step

COLOURS = Sequential(
    [
        nn.Conv(4, (3, 2)), nn.ReLU(), nn.Subsample(2, stride=2), nn.Tanh(), nn.Flatten(),
        nn.Dense(12), nn.Sigmoid(), nn.Dense(5),
    ],
    (2, 10, 9),
)  # fmt: skip
NETWORKS = {
    "papers-cnn": networks.papers_cnn(),
    "colours": COLOURS,
    "small mlp": networks.mlp([20, 16, 4], "tanh"),
    "mlp": networks.mlp([64, 160, 100, 10]),
    "odd mlp": networks.mlp([64, 260, 7]),
    "deep mlp": networks.mlp([784, 36, 36, 36, 36, 10], "sigmoid"),
}


def gradients(network):
    shapes = {path: Spec(p.shape) for path, p in network.parameters(network.inputs).items()}
    image, label = Spec((1, *network.inputs)), Spec((1,), "int64")
    return remove_dead(remove_common(trace(value_and_grad(network.loss), shapes, image, label)))


def kernel(network, batch, blocks=128, momentum=False):
    layers = layers_of(gradients(network))
    if sum(layer.parameters for layer in layers) <= 1 << 14:
        return PerImageKernel(layers, batch, min(batch, blocks), momentum)
    return tiled.TiledKernel(layers, batch, blocks, momentum)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    ("name", "batch", "momentum"),
    [
        ("papers-cnn", 128, True),
        ("papers-cnn", 1, False),
        ("colours", 6, False),
        ("mlp", 32, True),
        ("odd mlp", 9, False),
    ],
)
def test_generated_kernels_compile(name, batch, momentum, arch):
    text = kernel(NETWORKS[name], batch, momentum=momentum).text
    assert source.compile_to_binary(text, arch).startswith(b"\x7fELF")


@pytest.mark.smoke
def test_layers_are_found_in_a_program_however_it_is_fused():
    program = gradients(networks.papers_cnn())
    expected = [
        Windows((1, 28, 28), 6, (5, 5), (4, 4), "Sigmoid", "Sigmoid"),
        Dense(216, 10, "Linear"),
    ]
    assert layers_of(program) == expected
    assert layers_of(prepared(program, Device("compiled").backend)) == expected


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv(2, 3, padding=1), nn.Subsample(2, stride=2), nn.Flatten(), nn.Dense(3)],
        [nn.Conv(2, 3), nn.ReLU(), nn.Flatten(), nn.Dense(3)],
        [nn.Conv(2, 3), nn.MaxPool(2, 2), nn.Flatten(), nn.Dense(3)],
        [nn.Conv(2, 3), nn.Subsample(2, stride=1), nn.Flatten(), nn.Dense(3)],
    ],
    ids=["padding", "no subsampling", "max pooling", "windows that overlap"],
)
def test_other_networks_have_no_kernel(layers):
    program = gradients(Sequential(layers, (1, 8, 8)))
    with pytest.raises(UnsupportedNetwork):
        layers_of(program)
    assert loop(program) is None


def test_a_network_that_is_too_large_has_no_kernel():
    assert loop(gradients(networks.mlp([784, 802, 10]))) is None  # 802 is no multiple of four
    wide = Sequential([nn.Conv(64, 5), nn.Subsample(4, stride=4), nn.Flatten(), nn.Dense(10)],
                      (1, 28, 28))  # fmt: skip
    assert loop(gradients(wide)) is None


def test_products_that_fill_the_gpu_are_left_to_cublas():
    layers = layers_of(gradients(networks.mlp("big")))
    tiled.TiledKernel(layers, 128, 132)
    with pytest.raises(UnsupportedNetwork):
        tiled.TiledKernel(layers, 512, 132)


def test_every_word_of_a_message_has_one_place():
    made = kernel(networks.papers_cnn(), 128)
    places = [range(part.first, part.first + part.count) for part in made.parts]
    words = [word for place in places for word in place]
    assert len(words) == len(set(words)) == 173 + 216 + 10 + 1
    assert max(words) < made.words


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["mlp-small", "mlp-medium", "mlp-big"])
def test_products_are_covered_by_their_tiles(name):
    made = kernel(networks.by_name(name), 128, blocks=132)
    for product in made.products.values():
        high, wide = product.tile
        assert product.tiles * high * wide >= product.m * product.n
        assert 32 * product.shares * product.warps[0] * product.warps[1] == made.threads
        assert product.deep >= 8 * product.shares
    assert made.shared <= tiled.MOST_SHARED


# On a GPU


def runs(network, device, batch, steps, momentum=0.9, dtype="float32", precision="float32"):
    """Losses, parameters and velocities after some steps on made-up images."""
    draw = np.random.default_rng(3)
    images = draw.random((4 * batch + 1, *network.inputs)).astype(dtype)
    labels = draw.integers(0, network.classes, len(images))
    order = draw.integers(0, len(images), (steps, batch))
    with Device(device, precision=precision) as place:
        step = Step(network, batch, place, sgd(momentum, 0.01), dtype)
        start = {path: a.astype(dtype) for path, a in network.initialise(0).items()}
        own = {f"velocity.{path}": np.zeros_like(a) for path, a in start.items()}
        speeds = own if momentum else {}
        there = pareo.to_device((start, speeds, images, labels))
        losses = step.run(*there, order, 0.1)
        return pareo.to_host((losses, there[0], there[1]))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("batch", "momentum"), [(1, 0.9), (5, 0.0), (150, 0.9)])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_as_the_plain_program(name, batch, momentum):
    """float32 sums of up to 784 terms, over four steps, against float64.

    A loss near zero is the difference of numbers near ten, of which 1e-6 is a rounding.
    """
    network = NETWORKS[name]
    losses, parameters, speeds = runs(network, "cuda", batch, 4, momentum)
    true_losses, truth, true_speeds = runs(network, "vectorized", batch, 4, momentum, "float64")
    np.testing.assert_allclose(losses, true_losses, rtol=1e-5, atol=1e-6)
    start = network.initialise(0)
    for path, found in parameters.items():
        moved = np.linalg.norm(truth[path] - start[path])
        assert np.linalg.norm(found - truth[path]) < 1e-4 * moved + 1e-6
    for path, found in speeds.items():
        assert np.linalg.norm(found - true_speeds[path]) < 1e-4 * np.linalg.norm(found) + 1e-6


@pytest.mark.gpu
@needs_gpu
def test_products_in_tf32_are_rounded_and_no_more():
    """11 bits of 24: a step is off by thousandths, where float32 is off by millionths."""
    network = NETWORKS["mlp"]
    _, truth, _ = runs(network, "vectorized", 128, 1, dtype="float64")
    start, off = network.initialise(0), {}
    for precision in ("float32", "tf32"):
        _, found, _ = runs(network, "cuda", 128, 1, precision=precision)
        off[precision] = [
            np.linalg.norm(found[path] - true) / np.linalg.norm(true - start[path])
            for path, true in truth.items()
        ]
    assert max(off["float32"]) < 1e-5 < max(off["tf32"]) < 2e-2


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", ["papers-cnn", "mlp"])
def test_the_same_bits_every_time(name):
    first, again = (runs(NETWORKS[name], "cuda", 100, 20) for _ in range(2))
    assert (first[0] == again[0]).all()
    assert all((a == again[1][path]).all() for path, a in first[1].items())


@pytest.mark.gpu
@needs_gpu
def test_two_launches_are_one():
    network, draw = networks.papers_cnn(), np.random.default_rng(0)
    images, labels = draw.random((64, 1, 28, 28), dtype=np.float32), draw.integers(0, 10, 64)
    order = draw.integers(0, 64, (6, 8))
    with Device("cuda") as place:
        step = Step(network, 8, place)
        one, two, x, y = pareo.to_device(
            (network.initialise(0), network.initialise(0), images, labels)
        )
        whole = step.run(one, {}, x, y, order, 0.1)
        parts = [step.run(two, {}, x, y, part, 0.1) for part in (order[:2], order[2:])]
        assert (whole == np.concatenate(parts)).all()
        assert all((pareo.to_host(a) == pareo.to_host(two[path])).all() for path, a in one.items())


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", ["papers-cnn", "mlp"])
def test_a_wrong_label_is_reported(name):
    network = NETWORKS[name]
    images = np.ones((8, *network.inputs), np.float32)
    with Device("cuda") as place:
        step = Step(network, 8, place)
        there = pareo.to_device((network.initialise(0), {}, images, np.full(8, 10)))
        with pytest.raises(ShapeError, match="expects labels from 0 to 9; got 10"):
            step.run(*there, np.arange(8)[None], 0.1)


@pytest.mark.gpu
@needs_gpu
def test_a_batch_that_no_kernel_supports_is_trained_without_one():
    losses, _, _ = runs(networks.papers_cnn(), "cuda", 6000, 1)
    true_losses, _, _ = runs(networks.papers_cnn(), "vectorized", 6000, 1, dtype="float64")
    np.testing.assert_allclose(losses, true_losses, rtol=1e-5)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", ["colours", "mlp"])
def test_a_nan_is_not_lost_in_a_relu(name):
    """`mlp` and `colours` have one after their first layer: the loss must show the NaN."""
    network = NETWORKS[name]
    random = np.random.default_rng(0)
    images = random.standard_normal((20, *network.inputs)).astype(np.float32)
    labels = random.integers(0, network.classes, 20)
    order = np.arange(20).reshape(2, 10)
    with Device("cuda") as place:
        step = Step(network, 10, place)
        parameters = network.initialise(0)
        first = next(path for path in parameters if path.endswith(".b"))
        parameters[first][...] = np.nan
        losses = step.run(*pareo.to_device((parameters, {}, images, labels)), order, 0.1)
        assert step.loops
    assert np.isnan(losses).all()
