"""Convolutions by few filters of many channels, whose taps are filters of one pixel."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as some

from pareo import Device, op
from pareo.backends.compiled.conv import convolution
from pareo.backends.compiled.runtime import registers
from pareo.spec import Spec

NEAR = 2e-6  # by the norm, in float32


@pytest.fixture(autouse=True)
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """These loops are right, if not fast, on processors without AVX-512, too."""
    monkeypatch.setattr(registers, "HAS_AVX512", True)


def algorithm(x: Any, w: Any, how: dict[str, Any]) -> str:
    images = Spec(x.shape, np.float32)
    with Device("vectorized"):
        out = Spec(op.conv(x, w, **how).shape, np.float32)
    return convolution._algorithm(images, w.shape, out, **how)


def convolved(x: Any, w: Any, g: Any, how: dict[str, Any]) -> list[Any]:
    """The convolution and its two gradients."""
    return [
        op.conv(x, w, **how),
        op.conv_input_gradient(g, w, size=x.shape[2:], **how),
        op.conv_weight_gradient(x, g, size=w.shape[2:], **how),
    ]


def compare(x: Any, w: Any, how: dict[str, Any], threads: int, seed: int) -> None:
    """All three in float32, beside float64; what is not finite is so in the same places."""
    with Device("vectorized"), np.errstate(all="ignore"):
        y = op.conv(x, w, **how)
        g = np.random.default_rng(seed).standard_normal(y.shape)
        expected = convolved(x, w, g, how)
    with Device("compiled", threads=threads):
        found = convolved(*(a.astype(np.float32) for a in (x, w, g)), how)
    for one, true in zip(found, expected, strict=True):
        finite = np.isfinite(true)
        np.testing.assert_array_equal(np.isfinite(one), finite)
        off = np.linalg.norm(np.asarray(one)[finite] - true[finite])
        assert off <= NEAR * max(np.linalg.norm(true[finite]), 1e-30)


@settings(max_examples=40, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    images=some.integers(1, 7),
    channels=some.integers(12, 150),
    filters=some.integers(1, 4),
    window=some.tuples(some.integers(1, 6), some.integers(1, 6)),
    size=some.tuples(some.integers(4, 30), some.integers(4, 30)),
    stride=some.tuples(some.integers(1, 2), some.integers(1, 2)),
    dilation=some.tuples(some.integers(1, 2), some.integers(1, 2)),
    padding=some.tuples(*[some.integers(0, 3)] * 4),
    threads=some.integers(1, 3),
    seed=some.integers(0, 2**32 - 1),
)
@example(7, 130, 2, (4, 4), (23, 22), (1, 1), (1, 1), (0, 0, 0, 0), 3, 1)
@example(3, 116, 2, (6, 5), (13, 12), (2, 2), (1, 1), (3, 2, 1, 0), 2, 2)
@example(5, 20, 1, (2, 6), (9, 30), (1, 2), (2, 1), (1, 1, 1, 1), 2, 3)
def test_any_shape_agrees_with_float64(
    images: int, channels: int, filters: int, window: Any, size: Any, stride: Any, dilation: Any,
    padding: Any, threads: int, seed: int,
) -> None:  # fmt: skip
    inside = [size[i] + padding[i] + padding[i + 2] for i in (0, 1)]
    assume(all(dilation[i] * (window[i] - 1) < inside[i] for i in (0, 1)))
    random = np.random.default_rng(seed)
    x = random.standard_normal((images, channels, *size))
    w = random.standard_normal((filters, channels, *window))
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": 1}
    assume(algorithm(x, w, how) == "by_taps")
    compare(x, w, how, threads, seed + 1)


@pytest.mark.parametrize("where", ["image", "filter"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_reaches_what_it_would(where: str, number: float) -> None:
    """Pixels that a tap does not see are multiplied, too, but that is not seen."""
    random = np.random.default_rng(2)
    x, w = random.standard_normal((2, 14, 7, 8)), random.standard_normal((2, 14, 3, 2))
    how = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    assert algorithm(x, w, how) == "by_taps"
    if where == "image":
        x[1, 3, 0, 7] = number
    else:
        w[1, 3, 0, 1] = number
    compare(x, w, how, 2, 3)


def test_where_taps_are_filters() -> None:
    how: dict[str, Any] = {"padding": (0, 0, 0, 0), "dilation": (1, 1), "stride": (1, 1)}

    def chosen(x: Any, w: Any, side: int, groups: int = 1, dtype: str = "float32") -> bool:
        images, out = Spec(x, dtype), Spec((x[0], w[0], side, side), dtype)
        return convolution._algorithm(images, w, out, **how, groups=groups) == "by_taps"

    assert chosen((8, 94, 23, 23), (2, 94, 4, 4), 20)
    assert not chosen((8, 94, 23, 23), (32, 94, 4, 4), 20)  # many filters
    assert not chosen((8, 3, 23, 23), (2, 3, 4, 4), 20)  # few channels
    assert not chosen((8, 94, 23, 23), (2, 94, 1, 1), 23)  # these are filters of one pixel
    assert not chosen((8, 94, 23, 23), (2, 47, 4, 4), 20, groups=2)
    assert not chosen((8, 94, 23, 23), (2, 94, 4, 4), 20, dtype="float64")
