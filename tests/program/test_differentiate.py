"""Differentiation of programs; each operator's own gradient is tested in tests/operators."""

from typing import Any

import numpy as np
import pytest
from networks_for_tests import papers_cnn

from pareo import Device, Spec, grad, op, trace, value_and_grad
from pareo.errors import GradientError
from pareo.program import differentiate, remove_dead

pytestmark = pytest.mark.smoke


def test_differentiate_leaves_its_program_alone() -> None:
    program = trace(lambda x: op.sum(op.exp(x)), Spec((3,), "float64"))
    before = str(program)
    value, gradient = differentiate(program).compile()(np.zeros(3))
    assert str(program) == before
    assert value == 3
    assert gradient.tolist() == [1, 1, 1]


def test_gradient_through_many_uses_adds_up() -> None:
    gradient = grad(lambda x: op.sum(op.add(op.hadamard(x, x), x)))(np.array([1.0, 2.0]))
    assert gradient.tolist() == [3, 5]


def test_nested_argument_gives_nested_gradient() -> None:
    parameters = {"w": np.array([2.0]), "layers": [np.array([3.0]), np.array([4.0])]}

    def loss(p: dict) -> np.ndarray:
        return op.sum(op.hadamard(p["w"], op.hadamard(p["layers"][0], p["layers"][1])))

    value, gradient = value_and_grad(loss)(parameters)
    assert value == 24
    assert gradient["w"] == 12
    assert [g.item() for g in gradient["layers"]] == [8, 6]


def test_wrt_chooses_arguments() -> None:
    def loss(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return op.sum(op.hadamard(a, b))

    a, b = np.array([2.0]), np.array([3.0])
    assert grad(loss, wrt=1)(a, b) == 2
    assert grad(loss, wrt=(1, 0))(a, b) == (2, 3)
    assert grad(loss, wrt=-1)(a, b) == 2


def test_argument_without_influence_has_gradient_zero() -> None:
    assert grad(lambda a, b: op.sum(a), wrt=1)(np.ones(2), np.ones(3)).tolist() == [0, 0, 0]


def test_second_and_third_derivatives() -> None:
    def cube(x: np.ndarray) -> np.ndarray:
        return op.hadamard(x, op.hadamard(x, x))

    x = np.array(2.0)
    assert grad(cube)(x) == 12
    assert grad(grad(cube))(x) == 12
    assert grad(grad(grad(cube)))(x) == 6


def test_inner_gradient_sees_only_its_own_function() -> None:
    def outer(x: np.ndarray) -> np.ndarray:
        held = op.hadamard(x, x)  # depends on x, but is a constant for the inner gradient
        inner = grad(lambda y: op.hadamard(y, held))(x)
        return op.hadamard(inner, x)

    # inner = x**2, so outer = x**3.
    assert grad(outer)(np.array(2.0)) == 12


def test_what_a_function_closes_over_is_seen_anew_at_each_call() -> None:
    holder = {"w": np.array([2.0])}
    gradient = grad(lambda x: op.sum(op.hadamard(x, holder["w"])))
    assert gradient(np.array([1.0])) == 2
    holder["w"] = np.array([7.0])
    assert gradient(np.array([1.0])) == 7


def test_results_belong_to_the_caller() -> None:
    gradient = grad(lambda x: op.sum(op.hadamard(x, x)))
    first = gradient(np.array([1.0]))
    gradient(np.array([5.0]))
    assert first == 2


def test_data_gradient_of_the_first_layer_is_dead_code() -> None:
    loss, arguments = papers_cnn()
    program = differentiate(trace(loss, *arguments), wrt=range(2, 8))
    images = program.inputs[0]
    names = [i.name for i in remove_dead(program).instructions if images in i.inputs]
    assert names == ["conv", "conv_weight_gradient"]
    before = [i.name for i in program.instructions]
    assert before.count("conv_input_gradient") == 2, "one to the images, one inside the network"


@pytest.mark.parametrize("device", ["vectorized", "compiled"])
def test_whole_network_agrees_with_sequential(device: str) -> None:
    loss, arguments = papers_cnn(np.float64, batch=2)
    with Device("sequential"):
        exact = value_and_grad(loss, wrt=tuple(range(2, 8)))(*arguments)
    with Device(device):
        found = value_and_grad(loss, wrt=tuple(range(2, 8)))(*arguments)
    assert np.isclose(found[0], exact[0], rtol=1e-13)
    for a, b in zip(found[1], exact[1], strict=True):
        # float64 sums of a few thousand terms in another order.
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: grad(lambda x: x)(np.ones(3)), r"returns one number; got float64\[3\]"),
        (lambda: grad(lambda x: op.sum(x), wrt=2)(np.ones(3)), "an argument at 2; got 1"),
        (
            lambda: grad(lambda x, t: op.cross_entropy(x, t), wrt=1)(
                np.ones((1, 2)), np.array([0])
            ),
            "float32 or float64 arguments; got int64",
        ),
        (
            lambda: grad(lambda x: op.sum(op.max_pool_gradient(op.max_pool(x, 2), x, 2)))(
                np.ones((1, 1, 2, 2))
            ),
            "max_pool_gradient has no gradient",
        ),
    ],
)
def test_wrong_use_is_one_clear_sentence(call, sentence) -> None:
    with pytest.raises(GradientError, match=sentence):
        call()


@pytest.mark.parametrize("constant", [1.5, np.float64(1.5), np.array(1.5)])
def test_the_gradient_of_a_constant_is_zero(constant: Any) -> None:
    x = np.ones((2, 3))
    assert grad(lambda x: constant)(x).tolist() == np.zeros((2, 3)).tolist()
    assert value_and_grad(lambda x: constant)(x)[0] == 1.5
