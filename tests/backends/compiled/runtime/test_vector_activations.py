"""gelu and silu keep a small relative error far out, where 1 + erf(x) loses all digits."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from pareo import Device, op


def _gelu(x: float) -> float:
    return x * 0.5 * math.erfc(-x / math.sqrt(2))


def _gelu_gradient(x: float) -> float:
    density = math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return 0.5 * math.erfc(-x / math.sqrt(2)) + x * density


def _silu(x: float) -> float:
    return x / (1 + math.exp(-x))


@pytest.mark.parametrize(("name", "exact"), [("gelu", _gelu), ("silu", _silu)])
@pytest.mark.parametrize(("dtype", "error"), [("float32", 4e-7), ("float64", 5e-14)])
def test_relative_errors_are_small(
    name: str, exact: Callable[[float], float], dtype: str, error: float
) -> None:
    x = np.linspace(-12, 12, 4001).astype(dtype)
    with Device("compiled"):
        found = getattr(op, name)(x)
    # In float64 it is the rounding of erfc's argument here that counts: up to 2e-14 at -12.
    expected = np.array([exact(float(value)) for value in x])
    np.testing.assert_allclose(found, expected, rtol=error, atol=0)


@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-6), ("float64", 1e-14)])
def test_the_slope_of_gelu(dtype: str, error: float) -> None:
    x = np.linspace(-12, 12, 4001).astype(dtype)
    with Device("compiled"):
        found = op.gelu_gradient(np.ones_like(x), x)
    expected = np.array([_gelu_gradient(float(value)) for value in x])
    # Around its zero near -0.75, the slope is a difference of two larger numbers.
    np.testing.assert_allclose(found, expected, rtol=error, atol=error)


@pytest.mark.parametrize("approximate", [False, True])
def test_limits_and_nan(approximate: bool) -> None:
    x = np.array([-1e30, -50.0, 0.0, 50.0, 1e30, np.inf, np.nan], np.float32)
    with Device("compiled"):
        found = op.gelu(x, approximate=approximate)
        slopes = op.gelu_gradient(np.ones_like(x), x, approximate=approximate)
    np.testing.assert_array_equal(found, np.array([0, 0, 0, 50, 1e30, np.inf, np.nan], np.float32))
    np.testing.assert_array_equal(slopes[[0, 1, 2, 3, 4, 6]], [0, 0, 0.5, 1, 1, np.nan])
