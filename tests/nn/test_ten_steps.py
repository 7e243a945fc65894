"""Ten steps of SGD: losses, every gradient and every running statistic equal PyTorch's.

The networks have all their layers and connections, on small images and with an eighth of their
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
    size = SIZES.get(name, 32)
    factor = 16 if name.startswith("vgg") else 8  # most of VGG's weights are in dense layers
    network = networks.sized(name, (3, size, size), 10)
    return without_chance(thinner(network, factor, classes=10))


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


@pytest.mark.parametrize("name", TODAY)
@pytest.mark.parametrize("device", ["vectorized", "compiled", CUDA])
def test_ten_steps_in_float64(name: str, device: str) -> None:
    compare(name, small(name), device, "float64", EXACT)
