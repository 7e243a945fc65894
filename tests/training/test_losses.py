"""Losses and their gradients: equal to those of torch.nn.functional."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pareo import Device, trace, value_and_grad
from pareo.spec import Spec
from pareo.training import SettingError, losses
from pareo.training.losses import BinaryCrossEntropy, CrossEntropy, Loss, SquaredError

torch = pytest.importorskip("torch")
functional = torch.nn.functional

# A sum of some hundred terms in another order: a few hundred units in the last place.
ROUNDING = {"float64": 1e-12, "float32": 2e-5}


def compared(loss: Loss, peer: Any, outputs: Any, labels: Any) -> None:
    dtype = str(outputs.dtype)
    with Device("vectorized"):
        value, gradient = value_and_grad(lambda x: loss(x, labels))(outputs)
    x = torch.tensor(outputs, requires_grad=True)
    theirs = peer(x, torch.tensor(labels))
    theirs.backward()
    assert value.dtype == gradient.dtype == outputs.dtype
    close = {"rtol": ROUNDING[dtype], "atol": ROUNDING[dtype] / 10}
    np.testing.assert_allclose(value, theirs.detach().numpy(), **close)
    np.testing.assert_allclose(gradient, x.grad.numpy(), **close)


def some(rows: int, columns: int, seed: int, dtype: str) -> Any:
    return (3 * np.random.default_rng(seed).normal(size=(rows, columns))).astype(dtype)


SIZES = (st.integers(1, 9), st.integers(2, 12), st.integers(0, 99), st.sampled_from(list(ROUNDING)))


@given(*SIZES, st.sampled_from([0.0, 0.1, 0.9]), st.booleans())
@settings(max_examples=40)
def test_cross_entropy(
    rows: int, classes: int, seed: int, dtype: str, smoothing: float, weighted: bool
) -> None:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, rows)
    weights = generator.uniform(0.1, 3.0, classes).astype(dtype) if weighted else None
    loss = CrossEntropy(smoothing, None if weights is None else weights)  # type: ignore[arg-type]
    compared(
        loss,
        lambda x, y: functional.cross_entropy(
            x, y, None if weights is None else torch.tensor(weights), label_smoothing=smoothing
        ),
        some(rows, classes, seed, dtype),
        labels,
    )


@given(*SIZES)
@settings(max_examples=20)
def test_squared_error(rows: int, columns: int, seed: int, dtype: str) -> None:
    outputs, labels = (some(rows, columns, seed + i, dtype) for i in (0, 1))
    compared(SquaredError(), functional.mse_loss, outputs, labels)


@given(*SIZES)
@settings(max_examples=20)
def test_binary_cross_entropy(rows: int, columns: int, seed: int, dtype: str) -> None:
    outputs = 20 * some(rows, columns, seed, dtype)
    outputs[0, 0] = 0  # where a formula by absolute values has no gradient
    labels = np.random.default_rng(seed).integers(0, 2, (rows, columns)).astype(dtype)
    compared(BinaryCrossEntropy(), functional.binary_cross_entropy_with_logits, outputs, labels)


def test_plain_cross_entropy_stays_one_operator() -> None:
    """Fusions and loops of whole steps recognise it."""
    program = trace(CrossEntropy(), Spec((4, 3)), Spec((4,), "int64"))
    assert [line.operator.name for line in program.instructions] == ["cross_entropy"]


def test_targets() -> None:
    assert CrossEntropy().targets(5, 3) == Spec((5,), "int64", batch=0)
    assert SquaredError().targets(5, 3, "float64") == Spec((5, 3), "float64", batch=0)
    assert BinaryCrossEntropy().targets(5, 3) == Spec((5, 3), "float32", batch=0)
    with pytest.raises(SettingError, match="class_weights for 3 classes; got 2"):
        CrossEntropy(class_weights=(1, 2)).targets(5, 3)


@given(
    st.one_of(
        st.just(SquaredError()),
        st.just(BinaryCrossEntropy()),
        st.builds(
            CrossEntropy,
            st.floats(0, 0.9),
            st.none() | st.lists(st.floats(0.1, 9), min_size=1).map(tuple),
        ),
    )
)
def test_json_returns_the_same(loss: Loss) -> None:
    assert losses.from_plain(json.loads(json.dumps(loss.plain()))) == loss


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: CrossEntropy(1.0), "a smoothing from 0 to below 1; got 1.0"),
        (lambda: CrossEntropy(class_weights=3), "one number for each class; got 3"),  # type: ignore[arg-type]
        (lambda: CrossEntropy(class_weights="12"), "one number for each class; got '12'"),  # type: ignore[arg-type]
        (lambda: CrossEntropy(class_weights=(1, -1)), "class_weights of 0 or more; got -1"),
        (lambda: CrossEntropy(class_weights=(0, 0)), "class_weights that are not all 0"),
        (lambda: losses.by_name("hinge"), "squared-error.* binary-cross-entropy.*; got 'hinge'"),
        (lambda: losses.from_plain({"name": "hinge"}), "a loss with its numbers"),
    ],
)
def test_wrong_values(make: Any, reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        make()
