"""Training steps with a block for each image: their kernel on the host, and steps on the GPU."""

import numpy as np
import pytest
from devices import ARCHITECTURES, needs_gpu
from host_kernels import run
from recipes import sgd
from step_values import trained, use, values_of

from pareo.backends.cuda.images.lower import image_by_image, kernels_of
from pareo.backends.cuda.runtime import source as files
from pareo.backends.cuda.ways import chosen
from pareo.lab.arena.draw import drawn
from pareo.nn import networks
from pareo.training.step import step_program

TAKEN = [0, 1, 4, 6, 8, 9, 14, 16, 17, 19, 25, 26, 28, 29, 30, 34, 36, 44, 52, 55, 56]

NORMALISED = [5, 7, 10, 11, 13, 18, 21, 33, 39]


def network_of(name):
    return networks.by_name(name) if isinstance(name, str) else drawn(404, name, ("cnn",)).network


def check(found, wanted, name):
    wanted = np.asarray(wanted)
    error = np.linalg.norm(found - wanted)
    assert error <= 2e-5 * np.linalg.norm(wanted) + 1e-6, (name, error, np.linalg.norm(wanted))


def moments(rows, start, channels, pixels):
    """Mean and variance of channels, from those of each image."""
    means, squares = (rows[:, start + at : start + at + channels] for at in (0, channels))
    mean = means.mean(0)
    variance = squares.sum(0) + pixels * np.square(means - mean).sum(0)
    return mean, variance / (len(rows) * pixels)


@pytest.mark.parametrize(
    "name",
    [
        *("lenet5", 14, 19, 10, 33),
        *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 6, 29, 44, 52, 5, 7, 11, 39)),
    ],
)
def test_the_kernels_compute_the_gradients_of_each_image(name, tmp_path):
    program = step_program(network_of(name), 3)
    sources, _ = kernels_of(program)
    assert (len(sources) > 1) == (name in NORMALISED)
    values, exact = values_of(program)
    for number, source in enumerate(sources):
        # Whatever the order of the threads, the result must be the same.
        folder = tmp_path / str(number)
        folder.mkdir()
        totals, saved, rows = run(source, values, folder, backwards=name != "lenet5")
        found = totals | saved
        for one, start in source.moments:
            channels = program.specs[one.outputs[0]].size
            pixels = source.split.size(one.inputs[0]) // channels
            made = moments(rows, start, channels, pixels)
            found |= dict(zip(one.outputs, made, strict=True))
        for value, array in found.items():
            check(array, exact[value], f"%{value}")


@pytest.mark.smoke
def test_a_step_is_a_few_launches():
    program = step_program(networks.lenet5(), 128, sgd(0.9, 0.0005))
    names = [one.name for one in image_by_image(program).instructions if not one.is_view]
    assert sorted(names) == ["dot", "dot", "dot", "image_passes", "sum_rows", "update_all"]


@pytest.mark.parametrize("name", ["resnet18", "vgg11", "mlp-small", "convnext-tiny"])
def test_other_networks_are_left_alone(name):
    assert chosen(step_program(networks.by_name(name), 8)) != "images"


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", ["lenet5", 14, 10])
def test_kernels_compile(name, arch):
    for source in kernels_of(step_program(network_of(name), 3))[0]:
        assert files.compile_to_binary(source.text, arch).startswith(b"\x7fELF")


def test_sums_compile():
    assert files.compile_to_binary(files.read("images/sum_rows.cu"), "sm_90").startswith(b"\x7fELF")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("name", ["lenet5", *TAKEN, *NORMALISED])
@pytest.mark.parametrize(("batch", "momentum"), [(13, 0.9), (150, 0.0)])
def test_steps_on_the_gpu(name, batch, momentum, monkeypatch):
    network = network_of(name)
    use(monkeypatch, "images")
    losses, found, step = trained(network, batch, "cuda", np.float32, momentum)
    names = {one.name for one in step.executable.program.instructions}
    assert "image_passes" in names
    wanted = trained(network, batch, "vectorized", np.float64, momentum)
    np.testing.assert_allclose(losses, wanted[0], rtol=2e-5)
    for path, array in wanted[1].items():
        check(found[path], array, path)
    again = trained(network, batch, "cuda", np.float32, momentum)
    assert all(np.array_equal(again[1][path], found[path]) for path in found)
