"""A population on the GPU: a few launches for each layer, however many members there are."""

from importlib import import_module

import pytest

from pareo.backends import cuda
from pareo.nn import networks
from pareo.parallel.trials.population.step import population_program
from pareo.program.fuse import fuse
from pareo.training.optimizers import SGD
from pareo.training.recipe import Recipe

pytestmark = pytest.mark.smoke

FORWARD = ["stacked_dot_bias_relu", "stacked_dot_bias", "cross_entropy_with_gradient"]


def launched(momentum: float) -> list[str]:
    for family in cuda.FAMILIES:
        import_module(f"pareo.backends.cuda.kernels.{family}")
    from pareo.backends.cuda.table import backend

    program = population_program(networks.mlp([6, 5, 3]), 4, [Recipe(SGD(momentum))] * 2)
    return [instruction.name for instruction in fuse(program, backend).instructions]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_layers_are_fused(momentum: float) -> None:
    names = launched(momentum)
    assert [name for name in names if name in FORWARD] == FORWARD
    assert names.count("stacked_relu_bias_gradient") == 1


def test_gradients_without_momentum_are_never_written() -> None:
    names = launched(0.0)
    assert names.count("stacked_descend") == 2
    assert names.count("dot") == 1  # the error of the hidden layer


def test_momentum_is_one_launch_for_each_parameter() -> None:
    assert launched(0.9).count("sgd") == 4
