"""The networks of torchvision and timm: the same parameters by name, and the same outputs."""

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch_modules

from pareo import Device
from pareo.errors import ShapeError
from pareo.nn import networks
from pareo.nn.torch_names import from_torch_arrays, to_torch_arrays, torch_names
from pareo.training.definition import describe, rebuild


@pytest.fixture
def _freed() -> Iterator[None]:
    """Free what a test leaves behind: hundreds of megabytes, in cycles that Python finds late."""
    yield
    gc.collect()


HEAVY = ("vgg11", "vgg16-bn", "vit-b-16")  # 340 MB of weights and more
LEFT_OUT = ("vgg11-bn", "vgg16")  # they take as long, and have nothing that these two have not
COUNTS = {
    "vgg11": 132_863_336,
    "vgg11-bn": 132_868_840,
    "vgg16": 138_357_544,
    "vgg16-bn": 138_365_992,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "squeezenet1.1": 1_235_496,
    "mobilenet-v2": 3_504_872,
    "densenet121": 7_978_856,
    "efficientnet-b0": 5_288_548,
    "convnext-tiny": 28_589_128,
    "vit-tiny-16": 5_717_416,
    "vit-b-16": 86_567_656,
    # These are in neither. LeNet-5's count is the usual one. He et al. (2015) state 0.27 million
    # for 20 layers; the 1x1 convolutions of the shortcuts have 2,752 more.
    "lenet5": 61_706,
    "resnet20": 272_474,
    "resnet8": 78_042,
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts_are_those_of_torchvision(name: str) -> None:
    assert networks.by_name(name).count() == COUNTS[name]


def test_every_network_is_counted() -> None:
    older = {"alexnet", "alexnet-original", "googlenet", "googlenet-auxiliary"}
    assert set(networks.SIZED) == older | set(COUNTS)
    assert set(torch_modules.MODULES) == set(COUNTS) - {"lenet5", "resnet20", "resnet8"}


@pytest.mark.parametrize("name", torch_modules.MODULES)
def test_names_and_shapes_are_those_of_torchvision(name: str) -> None:
    expected, _ = torch_modules.read(name)
    network = networks.sized(name, (3, torch_modules.SIZE, torch_modules.SIZE), 1000)
    found = torch_names(network)
    assert {entry.name: entry.shape for entry in found.values()} == expected
    assert list(found) == list(network.parameters(network.inputs))
    assert len(found) == len(expected)  # one to one


def logits(name: str) -> Any:
    network = networks.sized(name, (3, torch_modules.SIZE, torch_modules.SIZE), 1000)
    network = rebuild(describe(network))  # type: ignore[assignment]
    arrays = {
        entry.name: torch_modules.weights(entry.name, entry.shape)
        for entry in torch_names(network).values()
    }
    parameters = from_torch_arrays(network, arrays)
    # Stochastic depth and dropout have no influence, as a module without them made the file.
    from torch_steps import without_chance

    with Device("vectorized"):
        return without_chance(network)(parameters, torch_modules.images(), training=True)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in HEAVY else ())
        for name in torch_modules.MODULES
        if name not in LEFT_OUT
    ],
)
@pytest.mark.usefixtures("_freed")
def test_outputs_are_those_of_torchvision(name: str) -> None:
    """Strides, padding, activations and constants, which names and shapes do not show."""
    pytest.importorskip("torch")
    _, expected = torch_modules.read(name)
    # float32 through up to 120 layers, with statistics of as few as 8 elements: PyTorch itself
    # differs by 2e-4 between float32 and float64. Logits are about 1; a wrong stride changes all.
    np.testing.assert_allclose(logits(name)[:, :6], expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", torch_modules.MODULES)
def test_the_files_are_what_torchvision_says(name: str) -> None:
    if not torch_modules.installed(name):
        pytest.skip("torchvision and timm are not installed")
    torch = pytest.importorskip("torch")
    with torch.device("meta"):
        state = torch_modules.module_of(name).state_dict()
    shapes = {n: tuple(a.shape) for n, a in state.items() if not n.endswith("num_batches_tracked")}
    assert torch_modules.read(name)[0] == shapes


@pytest.mark.parametrize("name", ["lenet5", "resnet8", "squeezenet1.1", "vit-tiny-16"])
def test_arrays_go_to_torch_and_back(name: str) -> None:
    network = networks.sized(name, (3, 32, 32), 10)
    parameters = network.initialise(seed=3)
    arrays = to_torch_arrays(network, parameters)
    assert all(a.flags.c_contiguous for a in arrays.values())
    counted = {**arrays, "bn1.num_batches_tracked": np.array(7)}  # PyTorch's counter has no use
    back = from_torch_arrays(network, counted)
    assert list(back) == list(parameters)
    for path, array in parameters.items():
        assert np.array_equal(back[path], array)


def test_dense_layers_are_transposed_and_packed_projections_have_their_name() -> None:
    network = networks.vit_b_16(size=32, classes=10)
    names = torch_names(network)
    packed = names["encoder.layers.encoder_layer_3.self_attention.in_proj.w"]
    assert packed.name == "encoder.layers.encoder_layer_3.self_attention.in_proj_weight"
    assert (packed.how, packed.shape) == ("transposed", (2304, 768))
    assert names["class_token.w"].name == "class_token"
    network = networks.convnext_tiny(size=32, classes=10)
    names = torch_names(network)
    linear = names["features.1.0.block.3.w"]
    assert (linear.name, linear.how) == ("features.1.0.block.3.weight", "reshaped")
    assert names["features.1.0.layer_scale.w"].shape == (96, 1, 1)
    assert names["features.2.1.w"].how == "same"  # a convolution of 2x2


def test_arrays_that_do_not_fit_are_named() -> None:
    network = networks.lenet5()
    arrays = to_torch_arrays(network, network.initialise())
    arrays["other"] = arrays.pop("c1.bias")
    arrays["f6.weight"] = arrays["f6.weight"].T
    with pytest.raises(ShapeError) as caught:
        from_torch_arrays(network, arrays)
    said = str(caught.value)
    assert "not those of lenet5" in said
    assert "missing: c1.bias" in said
    assert "left over: other" in said
    assert "misshapen: f6.weight (120, 84) instead of (84, 120)" in said
    with pytest.raises(ShapeError, match=r"missing: .* and 5 more$"):
        from_torch_arrays(network, {})
    with pytest.raises(ShapeError, match=r"missing: c1\.w"):
        to_torch_arrays(network, {})
