"""3x3 and 5x5 convolutions by Winograd's tiles, against float64."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from pareo import Device, op
from pareo.backends.compiled.conv.winograd import layer as winograd

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
    channels=some.sampled_from([8, 11, 16, 17, 18, 48, 51]),
    filters=some.sampled_from([8, 10, 16, 17, 33]),
    height=some.integers(1, 23),
    width=some.integers(1, 23),
    taps=some.sampled_from([3, 5]),
    padding=some.tuples(*[some.integers(0, 2)] * 4),
    threads=some.integers(1, 3),
    panels=some.booleans(),
    seed=some.integers(0, 2**32 - 1),
)
@pytest.mark.slow
def test_any_shape_agrees_with_float64(
    images: int,
    channels: int,
    filters: int,
    height: int,
    width: int,
    taps: int,
    padding: tuple[int, ...],
    threads: int,
    panels: bool,
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
        patch.setattr(winograd, "LARGE_FILTER_BYTES", 0 if panels else 1 << 60)
        found = convolved(*(a.astype(np.float32) for a in (x, w, g)), padding)
    for one, true in zip(found, expected, strict=True):
        assert distance(one, true) < NEAR


@pytest.mark.smoke
@pytest.mark.parametrize("size", [(17, 18), (7, 6)])
@pytest.mark.parametrize("name", ["relu", "sigmoid", "tanh"])
def test_bias_and_activation_are_fused(name: str, size: Any) -> None:
    from pareo import trace

    random = np.random.default_rng(1)
    x, w, b = (random.standard_normal(s) for s in ((2, 16, *size), (20, 16, 3, 3), (20,)))

    def layer(x: Any, w: Any, b: Any) -> Any:
        return getattr(op, name)(op.add_bias(op.conv(x, w, padding=(1, 1)), b))

    single = [a.astype(np.float32) for a in (x, w, b)]
    run = trace(layer, *single).compile(Device("compiled"))
    assert [i.name for i in run.program.instructions] == [f"conv_bias_{name}"]
    assert distance(run(*single), layer(x, w, b)) < NEAR


def single(
    x: Any, w: Any, g: Any, padding: tuple[int, ...], panels: bool = False
) -> tuple[Any, Any, Any]:
    """The three in float32 by tiles, however few, cut into rows of tiles or panels of filters."""
    with pytest.MonkeyPatch.context() as patch, Device("compiled"):
        patch.setattr(winograd, "LEAST_TILES", 1)
        patch.setattr(winograd, "LARGE_FILTER_BYTES", 0 if panels else 1 << 60)
        return convolved(*(a.astype(np.float32) for a in (x, w, g)), padding)


def drawn(taps: int) -> tuple[Any, Any, Any, int]:
    """Images, filters and errors for results as large as the images, and the padding for that."""
    random = np.random.default_rng(7)
    shapes = ((2, 16, 12, 13), (20, 16, taps, taps), (2, 20, 12, 13))
    x, w, g = (random.standard_normal(shape) for shape in shapes)
    return x, w, g, taps // 2


def tiles_with(pixel: tuple[int, int], size: tuple[int, int], before: int, tile: int) -> Any:
    """Which results lie in tiles whose patch holds a pixel, with so many rows of padding before."""
    row, column = np.indices(size) // tile * tile - before
    inside = [(at >= 0) & (at < winograd.PATCH) for at in (pixel[0] - row, pixel[1] - column)]
    return inside[0] & inside[1]


@pytest.mark.parametrize("panels", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("taps", [3, 5])
@pytest.mark.parametrize("operand", [0, 1, 2])
def test_how_far_a_number_that_is_not_finite_spreads(
    operand: int, taps: int, bad: float, panels: bool
) -> None:
    """As the table in docs/operators.md says: to its tiles, its channel or its filter."""
    x, w, g, pad = drawn(taps)
    (x, w, g)[operand][1, 3, 2, 1] = bad
    padding = (pad,) * 4
    with np.errstate(all="ignore"):
        expected = convolved(x, w, g, padding)
    may = [np.zeros(result.shape, bool) for result in expected]
    tile = winograd.TILES[taps, taps]
    if operand == 0:
        may[0][1] = tiles_with((2, 1), (12, 13), pad, tile)
        may[2][:, 3] = True
    elif operand == 1:
        may[0][:, 1] = True
        may[1][:, 3] = True
    else:
        may[1][1] = tiles_with((2, 1), (12, 13), taps - 1 - pad, tile)
        may[2][3] = True
    for found, true, spoiled in zip(single(x, w, g, padding, panels), expected, may, strict=True):
        assert not np.isfinite(found[~np.isfinite(true)]).any()
        assert np.isfinite(found[~spoiled]).all()
        assert np.isfinite(true[~spoiled]).all()
        assert distance(found[~spoiled], true[~spoiled]) < NEAR


@pytest.mark.parametrize("taps", [3, 5])
def test_results_are_finite_for_numbers_as_large_as_promised(taps: int) -> None:
    """A power of two changes no digit, up to the bound in docs/operators.md: 1e33 for a sum."""
    x, w, g, pad = drawn(taps)
    padding = (pad,) * 4
    plain = single(x, w, g, padding)
    terms = [20 * taps**2, 20 * taps**2, g[:, 0].size]
    largest = max(np.abs(a).max() for a in (x, w, g))
    factor = 2.0 ** np.floor(np.log2(1e33 / max(terms) / largest**2))
    one, two = single(factor * x, w, g, padding), single(x, w, factor * g, padding)
    for found, before in ((one[0], plain[0]), (two[1], plain[1]), (one[2], plain[2])):
        np.testing.assert_array_equal(found, np.float32(factor) * before)


def test_the_worst_signs_are_finite_as_far_as_promised() -> None:
    """All products of one sign inside the bracket, where the most is added up."""
    n = 2 * 12 * 12
    signs = np.where((np.indices((12, 12)).sum(axis=0) % 2).astype(bool), -1.0, 1.0)
    for pattern in (np.ones((12, 12)), signs, signs[:, :1] * np.ones((12, 12))):
        x = np.broadcast_to(1e33 / n * pattern, (2, 16, 12, 12))
        g = np.broadcast_to(pattern, (2, 20, 12, 12))
        found = single(x, np.ones((20, 16, 3, 3)), g, (1, 1, 1, 1))
        assert np.isfinite(found[2]).all()


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
