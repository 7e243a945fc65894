"""Ten steps of SGD: losses, every gradient and every running statistic equal PyTorch's.

The networks have all their layers and connections, on small images and with a fraction of their
channels. `test_torch_names.py` compares them at full width with torchvision's outputs, and
`test_ten_steps_of_torchvision` below at full width with its modules, where it is installed.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch_modules
from devices import CUDA
from torch_steps import (
    Seen,
    batches,
    largest_errors,
    starting_weights,
    steps_of_module,
    steps_of_pareo,
    steps_of_torch,
    thinner,
    without_chance,
)

from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.nn.torch_names import to_torch_arrays

STEPS, BATCH = 10, 4
# Deep networks with batch normalisation take images of 64 pixels, which leaves 2x2 at the end: with
# one pixel, statistics of four numbers make training chaotic. Then PyTorch itself, from weights
# that differ by one rounding, is somewhere else after ten steps.
SIZES = {"lenet5": 28, "resnet18": 64, "resnet34": 64, "resnet50": 64, "squeezenet1.1": 64,
         "mobilenet-v2": 64, "densenet121": 64, "efficientnet-b0": 64}  # fmt: skip
# What their channels are divided by; the widths of these have no larger common divisor.
FACTORS = {"lenet5": 1, "resnet8": 2, "resnet20": 4, "mobilenet-v2": 8, "efficientnet-b0": 8}
FACTOR = 16
HEAVY = (
    "densenet121",
    "efficientnet-b0",
    "convnext-tiny",
)  # many layers, which take long even if small
TODAY = [name for name in networks.SIZED if not name.startswith(("alexnet", "googlenet"))]
# A step moves the weights with the longest gradient by this much, for the same reason.
MOVE = 0.01

# In float64 each sum is rounded at 1e-16. Over ten steps MobileNetV2's gradients come to differ by
# 3e-11, others' by less than 1e-11; PyTorch from weights that differ by one rounding does the same.
EXACT = {"loss": 1e-11, "gradient": 1e-9, "state": 1e-10}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Arrays are small, and threads of PyTorch and pareo would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def small(name: str) -> Sequential:
    size, factor = SIZES.get(name, 32), FACTORS.get(name, FACTOR)
    network = networks.sized(name, (3, size, size), 10 * factor)
    return without_chance(thinner(network, factor))


def rate_for(first: Seen) -> float:
    return MOVE / float(max(np.linalg.norm(g) for g in first.gradients.values()))


def compare(name: str, network: Sequential, device: str, dtype: str, most: Any) -> None:
    start = starting_weights(network, dtype)
    data = list(batches(network, BATCH, STEPS, dtype))
    rate = rate_for(next(steps_of_torch(network, start, data, 0.0)))
    ours = steps_of_pareo(network, device, start, data, rate)
    theirs = steps_of_torch(network, start, data, rate)
    for number, (found, expected) in enumerate(zip(ours, theirs, strict=True)):
        check(f"{name}, step {number}", found, expected, most)


def check(where: str, found: Seen, expected: Seen, most: dict[str, float]) -> None:
    for what, error in largest_errors(found, expected).items():
        assert error < most[what], f"{where}: {what} differs by {error:.1e}"
    zero = [path for path, g in expected.gradients.items() if not np.abs(g).max() > 0]
    assert not zero, f"{where}: {zero} learn nothing"


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in HEAVY else n for n in TODAY]
)
@pytest.mark.parametrize("device", ["vectorized", "compiled", CUDA])
def test_ten_steps_in_float64(name: str, device: str) -> None:
    compare(name, small(name), device, "float64", EXACT)


# In float32 sums lose 1e-7 each, and a rounded input can fall on the other side of a ReLU: then
# terms of the gradient go elsewhere. A wrong formula makes an error of 1e-1 or more at once.
SINGLE = {"loss": 1e-3, "gradient": 5e-2, "state": 1e-2}


@pytest.mark.parametrize(
    "name",
    [
        *("resnet8", "resnet18", "vgg11-bn", "vit-tiny-16"),
        pytest.param("convnext-tiny", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("device", ["compiled", CUDA])
def test_ten_steps_in_float32(name: str, device: str) -> None:
    """Where the float32 code is not the float64 code."""
    compare(name, small(name), device, "float32", SINGLE)


@pytest.mark.slow
@pytest.mark.parametrize("name", torch_modules.MODULES)
def test_ten_steps_of_torchvision(name: str) -> None:
    """At full width, with torchvision's own module: in float64 on `vectorized`."""
    if not torch_modules.installed(name):
        pytest.skip("torchvision and timm are not installed")
    size = SIZES.get(name, 32)
    network = without_chance(networks.sized(name, (3, size, size), 1000))
    start = starting_weights(network, "float64")
    arrays = to_torch_arrays(network, start)
    module = torch_modules.module_of(name, size).double()
    module.load_state_dict({key: torch.from_numpy(a) for key, a in arrays.items()})
    data = list(batches(network, BATCH, STEPS, "float64"))
    rate = rate_for(next(steps_of_torch(network, start, data, 0.0)))
    ours = steps_of_pareo(network, "vectorized", start, data, rate)
    theirs = steps_of_module(module, network, data, rate)
    for number, (found, expected) in enumerate(zip(ours, theirs, strict=True)):
        check(f"{name}, step {number}", found, expected, EXACT)
