"""What operators say about themselves: names, documentation, FLOPs, bytes, devices."""

import inspect
from typing import Any

import numpy as np
import pytest

from pareo import Device, Spec, op
from pareo.errors import DeviceError

pytestmark = pytest.mark.smoke

every_operator = pytest.mark.parametrize("name", op.registry)


def flops_and_bytes(operator: Any, *args: Any, **kwargs: Any) -> tuple[int, int]:
    _, attributes, specs, result = operator.bind(args, kwargs)
    moved = operator.count_bytes(result, specs, attributes)
    return operator.count_flops(result, specs, attributes), moved


def zeros(*shape: int) -> Any:
    return np.zeros(shape, "float32")


# The sizes are the papers': matrices of 1,024, the CNN of the first paper on a batch of 128, the
# first layers of AlexNet (227 x 227 images, 96 filters of 11 x 11).
@pytest.mark.parametrize(
    ("operator", "args", "kwargs", "flops", "floats"),
    [
        (op.add, (zeros(8, 4), zeros(4)), {}, 32, 32 + 4 + 32),
        (op.scale, (2.0, zeros(8, 4)), {}, 32, 1 + 32 + 32),
        (op.sigmoid, (zeros(8, 4),), {}, 3 * 32, 32 + 32),
        (op.tanh, (zeros(8, 4),), {}, 32, 32 + 32),
        (op.dot, (zeros(1024, 1024), zeros(1024, 1024)), {}, 2 * 1024**3, 3 * 1024**2),
        (op.dot, (zeros(5, 2, 3), zeros(3, 4)), {}, 2 * 5 * 2 * 3 * 4, 30 + 12 + 40),
        (
            op.conv,
            (zeros(128, 1, 28, 28), zeros(6, 1, 5, 5)),
            {},
            2 * 128 * 6 * 24 * 24 * 25,
            128 * 784 + 150 + 128 * 6 * 576,
        ),
        (
            op.conv,
            (zeros(1, 3, 227, 227), zeros(96, 3, 11, 11)),
            {"stride": 4},
            2 * 96 * 55 * 55 * 3 * 121,
            3 * 227 * 227 + 96 * 363 + 96 * 55 * 55,
        ),
        (
            op.conv,
            (zeros(1, 96, 27, 27), zeros(256, 48, 5, 5)),
            {"padding": 2, "groups": 2},
            2 * 256 * 27 * 27 * 48 * 25,
            96 * 729 + 256 * 48 * 25 + 256 * 729,
        ),
        (
            op.conv_input_gradient,
            (zeros(128, 6, 24, 24), zeros(6, 1, 5, 5)),
            {"size": (28, 28)},
            2 * 128 * 6 * 24 * 24 * 25,
            128 * 784 + 150 + 128 * 6 * 576,
        ),
        (
            op.conv_weight_gradient,
            (zeros(128, 1, 28, 28), zeros(128, 6, 24, 24)),
            {"size": 5},
            2 * 128 * 6 * 24 * 24 * 25,
            128 * 784 + 150 + 128 * 6 * 576,
        ),
        (op.max_pool, (zeros(1, 1, 4, 4),), {"size": 2}, 16, 16 + 4),
        (op.average_pool, (zeros(1, 1, 4, 4),), {"size": 2}, 16 + 4, 16 + 4),
        (op.subsample, (zeros(1, 6, 24, 24), zeros(4, 4), 0.0, 4), {}, 216 * 32, 3456 + 17 + 216),
        (op.sum, (zeros(8, 4),), {"axis": 0}, 32, 32 + 4),
        (op.mean, (zeros(8, 4),), {"axis": 1}, 32 + 8, 32 + 8),
        (op.softmax, (zeros(8, 4),), {}, 5 * 32, 32 + 32),
        (op.squared_error, (zeros(8, 4), zeros(8, 4)), {}, 3 * 32 + 1, 32 + 32 + 1),
        (op.sgd, (zeros(100), zeros(100), zeros(100), 0.1), {}, 600, 300 + 3 + 200),
        (op.reshape, (zeros(8, 4), (32,)), {}, 0, 32 + 32),
    ],
)
def test_cost(operator: Any, args: Any, kwargs: Any, flops: int, floats: int) -> None:
    assert flops_and_bytes(operator, *args, **kwargs) == (flops, 4 * floats)


def test_bytes_count_labels_and_indices_at_their_own_size() -> None:
    logits, labels = zeros(8, 10), np.zeros(8, "int32")
    assert flops_and_bytes(op.cross_entropy, logits, labels)[1] == 4 * 80 + 4 * 8 + 4
    assert flops_and_bytes(op.argmax, logits, axis=1)[1] == 4 * 80 + 8 * 8


def test_shapes_are_known_without_arrays() -> None:
    images, filters = Spec((128, 1, 28, 28)), Spec((6, 1, 5, 5))
    how = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    assert op.conv.infer([images, filters], how) == Spec((128, 6, 24, 24))


@every_operator
def test_documentation(name: str) -> None:
    """A first sentence, an example that runs, and a signature that ends in out."""
    operator = op.registry[name]
    document = inspect.getdoc(operator)
    assert document is not None
    assert document.splitlines()[0][-1] in ".:"
    assert f"op.{name}(" in document
    parameters = inspect.signature(operator).parameters
    assert parameters["out"].kind is inspect.Parameter.KEYWORD_ONLY
    assert list(parameters)[-1] == "out"
    assert repr(operator) == f"op.{name}"


@every_operator
def test_public(name: str) -> None:
    assert getattr(op, name) is op.registry[name]
    assert name in op.__all__


def test_mul_is_hadamard() -> None:
    assert op.mul is op.hadamard


@every_operator
@pytest.mark.parametrize("device", ["sequential", "vectorized", "compiled"])
def test_every_device_has_every_operator(name: str, device: str) -> None:
    assert name in Device(device).backend.kernels


@pytest.mark.parametrize("device", ["sequential", "vectorized", "compiled"])
def test_no_device_has_more_than_the_operators(device: str) -> None:
    assert Device(device).backend.kernels.keys() <= op.registry.keys()


@pytest.fixture
def _mode() -> Any:
    """Whatever the test chooses is taken back."""
    before = op.get_mode()
    yield
    op.set_mode(before)


@pytest.mark.usefixtures("_mode")
def test_mode() -> None:
    assert op.get_mode() == "vectorized"
    op.set_mode("sequential")
    assert op.get_mode() == "sequential"
    with Device("compiled"):
        assert op.get_mode() == "compiled"
        op.set_mode("vectorized")
        assert op.get_mode() == "compiled"
    assert op.get_mode() == "vectorized"


@pytest.mark.usefixtures("_mode")
def test_an_unknown_mode_changes_nothing() -> None:
    with pytest.raises(DeviceError, match="got 'abacus'"):
        op.set_mode("abacus")
    assert op.get_mode() == "vectorized"
