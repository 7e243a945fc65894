"""Gradients of activations with sums over all but the channels: as NumPy computes them apart."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pareo import Device, Spec, op, trace
from pareo.backends.compiled.kernels.activation_sums import LEAST_PIXELS

DERIVATIVES = {
    "sigmoid": lambda y: y * (1 - y),
    "tanh": lambda y: 1 - y * y,
    "relu": lambda y: np.where(y <= 0, 0, 1),
}


def program(name: str, shape: tuple[int, ...], in_place: bool) -> Any:
    """The gradient and its sums; in place where nothing else reads the g that the program makes."""

    def both(g: Any, y: Any) -> Any:
        d = getattr(op, f"{name}_gradient")(op.scale(2, g) if in_place else g, y)
        return d, op.sum(d, axis=(0, 2, 3))

    return trace(both, Spec(shape), Spec(shape))


@settings(max_examples=30, derandomize=True, deadline=None)
@given(
    st.sampled_from(sorted(DERIVATIVES)), st.integers(1, 5), st.integers(1, 9), st.integers(4, 40),
    st.integers(4, 40), st.booleans(), st.integers(1, 4),
)  # fmt: skip
def test_any_sizes(
    name: str, images: int, channels: int, high: int, wide: int, in_place: bool, threads: int
) -> None:
    shape = images, channels, high, wide
    random = np.random.default_rng(high * wide)
    g, y = (random.standard_normal(shape).astype("float32") for _ in range(2))
    step = program(name, shape, in_place).compile(Device("compiled", threads=threads))
    assert f"{name}_gradient_sums" in [i.name for i in step.program.instructions]
    d, sums = step(g, y)
    exact = DERIVATIVES[name](y.astype(np.float64)) * g * (2 if in_place else 1)
    np.testing.assert_allclose(d, exact, rtol=1e-6, atol=1e-5)
    # Sums of up to 8000 numbers of order one, in blocks of float32.
    np.testing.assert_allclose(sums, exact.sum(axis=(0, 2, 3)), rtol=1e-5, atol=2e-3)


@pytest.mark.parametrize("in_place", [False, True])
def test_nan_stays(in_place: bool) -> None:
    g, y = np.ones((2, 3, 4, 4), "float32"), np.ones((2, 3, 4, 4), "float32")
    y[1, 1, 2, 2] = np.nan
    g[0, 2, 0, 0] = np.nan
    d, sums = program("relu", g.shape, in_place).compile(Device("compiled"))(g, y)
    assert np.isnan(d).sum() == 1
    assert np.isnan(sums).tolist() == [False, False, True]


def test_few_pixels_take_two_passes() -> None:
    side = int(LEAST_PIXELS**0.5) - 1
    step = program("relu", (2, 3, side, side), False).compile(Device("compiled"))
    assert [i.name for i in step.program.instructions] == ["relu_gradient", "sum"]
