"""Which way a training step is computed; what was fastest was measured on an H200."""

from typing import Any

import numpy as np
import pytest

from pareo import Device, op, trace
from pareo.backends.cuda import ways
from pareo.backends.cuda.images.costs import expected_otherwise
from pareo.backends.cuda.nhwc.lower import lowered
from pareo.lab.arena.draw import drawn
from pareo.nn import networks
from pareo.program import value_and_grad
from pareo.training.step import step_program

# Networks drawn by a seed: the way that took the least time in float32, and what others took.
FASTEST = {
    ("cnn", 202, 5): "grid",  # 91 us; instruction by instruction 185
    ("cnn", 202, 10): "grid",  # 116 us; a block for each image 199, otherwise 214
    ("mid", 101, 3): "grid",  # 173 us; otherwise 313
    ("mid", 101, 5): "grid",  # 356 us; otherwise 599
    ("mid", 101, 6): "grid",  # 389 us; otherwise 810
    ("mid", 6262, 1): "grid",  # 456 us; a block for each image 687
    ("cnn", 5151, 3): "grid",  # 359 us; a block for each image 555
}


@pytest.mark.parametrize(("network", "way"), FASTEST.items())
def test_the_way_that_was_fastest_is_chosen(network: tuple[str, int, int], way: str) -> None:
    kind, seed, index = network
    one = drawn(seed, index, (kind,))
    with Device("vectorized"):
        assert ways.chosen(step_program(one.network, one.batch)) == way


@pytest.mark.parametrize(("name", "batch"), [("resnet18", 64), ("resnet18", 256), ("vgg11", 64)])
def test_large_convolutions_are_left_to_kernels_for_them_in_float32(name: str, batch: int) -> None:
    """ResNet-18 of 64 images took 18.7 ms so; a block for each image takes about 90."""
    with Device("vectorized"):
        assert ways.chosen(step_program(networks.by_name(name), batch)) == ways.OTHERWISE


def test_a_step_that_is_lowered_in_part_goes_on_instruction_by_instruction() -> None:
    """As it is where there is no memory to time the plans of some convolutions."""
    with Device("vectorized"):
        whole = step_program(networks.by_name("resnet18"), 8)
        partly = lowered(whole, "float32", lambda one: one.computes != "filters")
        assert ways.is_step(partly)
        assert {"conv_forward", "conv_weight_gradient"} <= {one.name for one in partly.instructions}
        assert ways.chosen(partly) == ways.OTHERWISE


def test_no_images_are_left_to_other_kernels() -> None:
    """Planning divides by sizes."""

    def total(x: Any, w: Any) -> Any:
        return op.sum(op.conv(x, w))

    x, w = np.ones((0, 2, 6, 6), np.float32), np.ones((3, 2, 3, 3), np.float32)
    with Device("vectorized"):
        program = trace(value_and_grad(total, wrt=(0, 1)), x, w)
        assert ways.chosen(program) == ways.OTHERWISE


# Microseconds instruction by instruction: in float32, and with tensor cores.
MEASURED = {
    ("alexnet", 16): (2544, 801),
    ("alexnet", 128): (8024, 2658),
    ("resnet18", 8): (4476, 1636),
    ("resnet18", 64): (18697, 5393),
    ("mobilenet-v2", 16): (4507, 3291),
}


@pytest.mark.parametrize(("network", "times"), MEASURED.items())
def test_networks_take_about_what_is_expected(
    network: tuple[str, int], times: tuple[float, float]
) -> None:
    name, batch = network
    program = step_program(networks.by_name(name), batch)
    for exact, measured in zip((True, False), times, strict=True):
        assert 0.6 * measured < expected_otherwise(program, exact) < 1.7 * measured
