"""3x3 and 5x5 convolutions by Winograd's tiles, against float64."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from pareo import Device, op
from pareo.backends.compiled import winograd

# By the norm, in float32: seen up to 4e-6 with hundreds of channels, where the direct sum has 3e-7.
NEAR = 1e-5


def convolved(x: Any, w: Any, g: Any, padding: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """The convolution and its two gradients."""
    how = {"stride": (1, 1), "padding": padding, "dilation": (1, 1), "groups": 1}
    return (
        op.conv(x, w, **how),
        op.conv_input_gradient(g, w, size=x.shape[2:], **how),
        op.conv_weight_gradient(x, g, size=w.shape[2:], **how),
    )


def distance(found: Any, expected: Any) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@given(
    images=some.integers(1, 5),
    channels=some.sampled_from([16, 20, 48]),
    filters=some.sampled_from([16, 17, 33]),
    height=some.integers(1, 23),
    width=some.integers(1, 23),
    taps=some.sampled_from([3, 5]),
    padding=some.tuples(*[some.integers(0, 2)] * 4),
    threads=some.integers(1, 3),
    seed=some.integers(0, 2**32 - 1),
)
def test_any_shape_agrees_with_float64(
    images: int,
    channels: int,
    filters: int,
    height: int,
    width: int,
    taps: int,
    padding: tuple[int, ...],
    threads: int,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    top, left, bottom, right = padding
    rows, columns = height + top + bottom - taps + 1, width + left + right - taps + 1
    if rows < 1 or columns < 1:
        return
    x = random.standard_normal((images, channels, height, width))
    w = random.standard_normal((filters, channels, taps, taps))
    g = random.standard_normal((images, filters, rows, columns))
    expected = convolved(x, w, g, padding)
    with pytest.MonkeyPatch.context() as patch, Device("compiled", threads=threads):
        patch.setattr(winograd, "LEAST_TILES", 1)
        found = convolved(*(a.astype(np.float32) for a in (x, w, g)), padding)
    for one, true in zip(found, expected, strict=True):
        assert distance(one, true) < NEAR


@pytest.mark.parametrize("name", ["relu", "sigmoid", "tanh"])
def test_bias_and_activation_are_fused(name: str) -> None:
    from pareo import trace

    random = np.random.default_rng(1)
    x, w, b = (random.standard_normal(s) for s in ((2, 16, 17, 18), (20, 16, 3, 3), (20,)))

    def layer(x: Any, w: Any, b: Any) -> Any:
        return getattr(op, name)(op.add_bias(op.conv(x, w, padding=(1, 1)), b))

    single = [a.astype(np.float32) for a in (x, w, b)]
    run = trace(layer, *single).compile(Device("compiled"))
    assert [i.name for i in run.program.instructions] == [f"conv_bias_{name}"]
    assert distance(run(*single), layer(x, w, b)) < NEAR


def test_a_number_that_is_none_stays_in_its_tiles_and_infinity_shows() -> None:
    x = np.ones((1, 16, 24, 24), np.float32)
    w = np.ones((16, 16, 3, 3), np.float32)
    x[0, 3, 0, 0] = np.nan
    with Device("compiled"):
        y = op.conv(x, w, padding=(1, 1))
    assert np.isnan(y[0, :, :2, :2]).all()
    assert np.isfinite(y[0, :, 8:, 8:]).all()


def test_the_same_threads_give_the_same_bits() -> None:
    random = np.random.default_rng(2)
    x, w, g = (
        random.standard_normal(s, np.float32)
        for s in ((4, 32, 13, 13), (48, 32, 3, 3), (4, 48, 13, 13))
    )
    with Device("compiled", threads=2):
        first = convolved(x, w, g, (1, 1, 1, 1))
        for _ in range(3):
            again = convolved(x, w, g, (1, 1, 1, 1))
            assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize(
    "how",
    [
        {"stride": (2, 2)},
        {"dilation": (2, 2)},
        {"groups": 2},
        {"padding": (3, 3, 3, 3)},
    ],
)
def test_what_does_not_suit_goes_another_way(how: dict[str, Any]) -> None:
    plain = {"stride": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    out = np.zeros((8, 64, 28, 28), np.float32)
    assert winograd.suits((64, 64, 3, 3), out, **plain)
    assert not winograd.suits((64, 64, 3, 3), out, **(plain | how))
    assert winograd.suits((64, 64, 5, 5), out, **plain)
    assert not winograd.suits((64, 64, 4, 4), out, **plain)
    assert not winograd.suits((64, 64, 3, 3), out.astype(np.float64), **plain)
