"""Depthwise convolution in register tiles equals im2col of NumPy, at every edge."""

from typing import Any

import numpy as np
import pytest

from pareo import Device, op
from pareo.backends.compiled.conv import depthwise
from pareo.spec import Spec

# Taps, stride, padding (top, left, bottom, right), height and width, filters for each channel.
LAYERS = {
    "several planes at a time": (3, 1, (1, 1, 1, 1), (7, 7), 1),
    "wider than a vector": (3, 1, (1, 0, 2, 1), (6, 40), 1),
    "stride 2": (3, 2, (1, 1, 1, 1), (14, 33), 1),
    "stride 2, odd padding, large taps": (5, 2, (2, 1, 0, 3), (9, 18), 1),
    "several filters": (3, 2, (0, 1, 1, 1), (9, 11), 2),
    "large planes": (3, 1, (1, 1, 1, 1), (40, 70), 2),
}


LONG = "stride 2, odd padding, large taps", "several planes at a time"


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in LAYERS]
)
@pytest.mark.parametrize("threads", [1, 2])
def test_depthwise_agrees_with_numpy(name: str, threads: int) -> None:
    taps, stride, padding, (high, wide), share = LAYERS[name]
    random = np.random.default_rng(1)
    x = random.standard_normal((3, 4, high, wide))
    w = random.standard_normal((4 * share, 1, taps, taps))
    how: Any = {"stride": stride, "padding": padding, "groups": 4}
    full = {"stride": (stride, stride), "padding": padding, "dilation": (1, 1), "groups": 4}
    assert depthwise.suits(Spec.of(x), w.shape, full)
    with Device("vectorized"):
        y = op.conv(x, w, **how)
        gx = op.conv_input_gradient(y, w, size=(high, wide), **how)
        gw = op.conv_weight_gradient(x, y, size=(taps, taps), **how)
    with Device("compiled", threads=threads):
        # float64 on both sides: what is left is the order of sums.
        np.testing.assert_allclose(op.conv(x, w, **how), y, rtol=1e-12, atol=1e-12)
        found = op.conv_input_gradient(y, w, size=(high, wide), **how)
        np.testing.assert_allclose(found, gx, rtol=1e-12, atol=1e-11)
        found = op.conv_weight_gradient(x, y, size=(taps, taps), **how)
        np.testing.assert_allclose(found, gw, rtol=1e-11, atol=1e-10)


def test_a_bias_is_added_in_the_same_pass() -> None:
    random = np.random.default_rng(2)
    x = random.standard_normal((2, 3, 8, 9)).astype(np.float32)
    w = random.standard_normal((3, 1, 3, 3)).astype(np.float32)
    b = random.standard_normal(3).astype(np.float32)
    from pareo import trace

    def layer(x: Any, w: Any, b: Any) -> Any:
        return op.add_bias(op.conv(x, w, padding=1, groups=3), b)

    with Device("compiled"):
        step = trace(layer, *map(Spec.of, (x, w, b))).compile()
        assert [i.name for i in step.program.instructions] == ["conv_bias"]
        found = step(x, w, b)
    with Device("vectorized"):
        expected = op.add_bias(op.conv(x, w, padding=1, groups=3), b)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_pixels_beside_a_window_do_not_reach_its_sums() -> None:
    """Without padding, a vector at the edge reads pixels that its taps do not."""
    x = np.ones((1, 2, 5, 6), np.float32)
    x[:, :, :, -1] = np.inf
    g = np.ones((1, 2, 3, 4), np.float32)
    with Device("compiled"):
        found = op.conv_weight_gradient(x, g, size=(3, 3), groups=2)
    assert np.isfinite(found[:, 0, :, :2]).all()
    assert np.isinf(found[:, 0, :, 2]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("stride", [1, 2])
def test_rows_of_every_length_agree_with_numpy(stride: int, dtype: Any) -> None:
    """Shorter than a vector, a multiple of it, and with a last vector that overlaps another."""
    random = np.random.default_rng(3)
    w = random.standard_normal((3, 1, 3, 3)).astype(dtype)
    how: Any = {"stride": stride, "padding": 1, "groups": 3}
    # Sums of up to 9 * 70 products of numbers near one.
    near: Any = {"rtol": 1e-4, "atol": 1e-4} if dtype == np.float32 else {"atol": 1e-12}
    for wide in (*range(1, 20), 31, 32, 33, 35):
        x = random.standard_normal((2, 3, 5, wide)).astype(dtype)
        results = {}
        for device in ("vectorized", "compiled"):
            with Device(device, threads=1):
                y = op.conv(x, w, **how)
                gx = op.conv_input_gradient(y, w, size=(5, wide), **how)
                gw = op.conv_weight_gradient(x, y, size=(3, 3), **how)
            results[device] = y, gx, gw
        for found, expected in zip(results["compiled"], results["vectorized"], strict=True):
            np.testing.assert_allclose(found, expected, **near)


def test_an_infinite_pixel_of_two_vectors_counts_once() -> None:
    """The last vector of a row overlaps the one before; 0 times an infinite pixel would be NaN."""
    for wide in range(1, 40):
        for place in range(wide):
            x = np.ones((1, 2, 1, wide), np.float32)
            x[..., place] = np.inf
            with Device("compiled"):
                found = op.conv_weight_gradient(
                    x, np.ones_like(x), size=(1, 1), padding=0, groups=2
                )
            assert np.isposinf(found).all()
