"""Convolutions with channels last, with any window and stride, against float64."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pareo import Device, op
from pareo.backends.compiled.conv.channels_last import layer
from pareo.backends.compiled.conv.winograd import layer as winograd

# By the norm, in float32: sums of up to thousands of products, in any order.
NEAR = 2e-6


def convolved(x: Any, w: Any, g: Any, stride: Any, padding: Any) -> tuple[Any, Any, Any]:
    """The convolution and its two gradients."""
    how = {"stride": stride, "padding": padding, "dilation": (1, 1), "groups": 1}
    return (
        op.conv(x, w, **how),
        op.conv_input_gradient(g, w, size=x.shape[2:], **how),
        op.conv_weight_gradient(x, g, size=w.shape[2:], **how),
    )


def distance(found: Any, expected: Any) -> float:
    return float(np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-30))


def drawn(
    seed: int, images: int, channels: int, filters: int, size: Any, window: Any, stride: Any,
    padding: Any,
) -> tuple[Any, Any, Any] | None:  # fmt: skip
    """Images, filters and errors; None if no window fits."""
    random = np.random.default_rng(seed)
    top, left, bottom, right = padding
    rows = (size[0] + top + bottom - window[0]) // stride[0] + 1
    columns = (size[1] + left + right - window[1]) // stride[1] + 1
    if rows < 1 or columns < 1:
        return None
    shapes = (
        (images, channels, *size),
        (filters, channels, *window),
        (images, filters, rows, columns),
    )
    x, w, g = (random.standard_normal(shape) for shape in shapes)
    return x, w, g


sizes = some.tuples(some.integers(1, 40), some.integers(1, 40))


@settings(max_examples=30)
@given(
    images=some.integers(1, 5),
    channels=some.sampled_from([1, 3, 8, 11, 16, 17, 20, 33, 40]),
    filters=some.sampled_from([1, 3, 8, 9, 16, 17, 33, 48, 100]),
    size=sizes,
    window=some.tuples(some.integers(1, 7), some.integers(1, 7)),
    stride=some.tuples(some.integers(1, 4), some.integers(1, 4)),
    padding=some.tuples(*[some.integers(0, 3)] * 4),
    threads=some.integers(1, 3),
    cut=some.booleans(),
    panels=some.booleans(),
    seed=some.integers(0, 2**32 - 1),
)
def test_any_shape_agrees_with_float64(
    images: int, channels: int, filters: int, size: Any, window: Any, stride: Any, padding: Any,
    threads: int, cut: bool, panels: bool, seed: int,
) -> None:  # fmt: skip
    """Also where images are cut into rows, and where Winograd's way would be taken."""
    arrays = drawn(seed, images, channels, filters, size, window, stride, padding)
    if arrays is None:
        return
    expected = convolved(*arrays, stride, padding)
    with pytest.MonkeyPatch.context() as patch, Device("compiled", threads=threads):
        patch.setattr(winograd, "LEAST_TILES", 1 << 30)
        if cut:
            patch.setattr(layer, "BUFFER_BYTES", 1 << 12)
            patch.setattr(layer, "PART_BYTES", 1 << 13)
        patch.setattr(layer, "LARGE_SUMS_BYTES", 0 if panels else 1 << 60)
        found = convolved(*(a.astype(np.float32) for a in arrays), stride, padding)
    for one, true in zip(found, expected, strict=True):
        assert distance(one, true) < NEAR


@settings(max_examples=30)
@given(
    images=some.sampled_from([1, 2, 15, 31]),
    channels=some.sampled_from([1, 3, 8, 20]),
    filters=some.sampled_from([1, 5, 9, 33, 48]),
    size=some.tuples(some.integers(1, 6), some.integers(1, 20)),
    window=some.tuples(some.integers(3, 11), some.integers(3, 11)),
    stride=some.tuples(some.integers(1, 3), some.integers(1, 3)),
    share=some.tuples(*[some.floats(0, 1)] * 4),
    threads=some.integers(1, 2),
    panel=some.sampled_from([1, 1 << 30]),
    seed=some.integers(0, 2**32 - 1),
)
def test_windows_that_reach_far_beyond_images_agree_with_float64(
    images: int, channels: int, filters: int, size: Any, window: Any, stride: Any, share: Any,
    threads: int, panel: int, seed: int,
) -> None:  # fmt: skip
    """Taps that meet only padding are left out, in tiles of images, rows or columns."""
    padding = tuple(int(part * (window[axis % 2] - 1)) for axis, part in enumerate(share))
    arrays = drawn(seed, images, channels, filters, size, window, stride, padding)
    if arrays is None:
        return
    expected = convolved(*arrays, stride, padding)
    with pytest.MonkeyPatch.context() as patch, Device("compiled", threads=threads):
        patch.setattr(winograd, "LEAST_TILES", 1 << 30)
        patch.setattr(layer, "PANEL_BYTES", panel)
        found = convolved(*(a.astype(np.float32) for a in arrays), stride, padding)
    for one, true in zip(found, expected, strict=True):
        assert distance(one, true) < NEAR


@pytest.mark.parametrize("window", [7, 9])
@pytest.mark.parametrize("filters", [2, 20])
def test_padding_meets_numbers_that_are_not_finite(window: int, filters: int) -> None:
    """Its 0 times infinity is NaN, as in plain loops, also for taps that meet nothing else."""
    padding = (window // 2,) * 4
    arrays = drawn(7, 3, 16, filters, (3, 4), (window, window), (1, 1), padding)
    assert arrays is not None
    x, w, g = (a.astype(np.float32) for a in arrays)
    w[1, 3, 0, 1] = np.inf
    w[0, 2, window // 2, window // 2] = np.nan
    g[1, 0, 0, 0] = -np.inf
    with Device("sequential"):
        expected = convolved(x, w, g, (1, 1), padding)
    with Device("compiled"):
        found = convolved(x, w, g, (1, 1), padding)
    for one, true in zip(found, expected, strict=True):
        assert np.array_equal(np.isfinite(one), np.isfinite(true))
        assert np.array_equal(np.isnan(one), np.isnan(true))


@pytest.mark.parametrize("size", [(17, 18), (5, 6)])
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("name", ["relu", "sigmoid", "tanh"])
def test_bias_and_activation_are_fused(
    name: str, cut: bool, size: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For whole images, whose channels follow each other, and for some rows of one."""
    from pareo import trace

    if cut:
        monkeypatch.setattr(layer, "BUFFER_BYTES", 1 << 12)
        monkeypatch.setattr(layer, "PART_BYTES", 1 << 13)
    random = np.random.default_rng(1)
    x, w, b = (random.standard_normal(s) for s in ((2, 16, *size), (20, 16, 3, 3), (20,)))

    def step(x: Any, w: Any, b: Any) -> Any:
        return getattr(op, name)(op.add_bias(op.conv(x, w, stride=(2, 2), padding=(1, 1)), b))

    single = [a.astype(np.float32) for a in (x, w, b)]
    run = trace(step, *single).compile(Device("compiled"))
    assert [i.name for i in run.program.instructions] == [f"conv_bias_{name}"]
    assert distance(run(*single), step(x, w, b)) < NEAR


def test_numbers_that_are_not_finite_stay_in_their_windows() -> None:
    """A NaN reaches the results whose window has it, and no others, there and back."""
    arrays = drawn(3, 2, 16, 20, (15, 14), (3, 3), (2, 2), (1, 1, 1, 1))
    assert arrays is not None
    x, w, g = arrays
    x[1, 3, 4, 5] = np.nan
    g[0, 2, 3, 3] = np.inf
    expected = convolved(x, w, g, (2, 2), (1, 1, 1, 1))
    with Device("compiled"):
        found = convolved(*(a.astype(np.float32) for a in (x, w, g)), (2, 2), (1, 1, 1, 1))
    for one, true in zip(found, expected, strict=True):
        assert np.array_equal(np.isfinite(one), np.isfinite(true))


def test_a_window_of_one_needs_no_copy_and_gradients_of_few_channels_another_way() -> None:
    x, out = np.zeros((2, 16, 8, 8), np.float32), np.zeros((2, 32, 4, 4), np.float32)
    how: dict[str, Any] = {"padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    assert layer.suits(x, (32, 16, 3, 3), out, stride=(2, 2), **how)
    assert not layer.suits_input_gradient(x[:, :4], (32, 4, 3, 3), out, stride=(2, 2), **how)
    assert not layer.suits(x, (32, 8, 3, 3), out, stride=(2, 2), **(how | {"groups": 2}))
    assert not layer.suits(x, (32, 16, 3, 3), out, stride=(2, 2), **(how | {"dilation": (2, 2)}))
    assert not layer.suits(x, (32, 16, 1, 1), out, stride=(1, 1), **(how | {"padding": (0,) * 4}))


@pytest.mark.parametrize("size", [3, 9])
@pytest.mark.parametrize("stride", [1, 2])
def test_relu_of_minus_infinity_is_zero(stride: int, size: int) -> None:
    """In images of fewer pixels than a register has lanes as well; Winograd's way at stride 1."""
    from pareo import trace

    x, w = np.ones((2, 8, size, size), np.float32), np.ones((9, 8, 3, 3), np.float32)
    b = np.full(9, -np.inf, np.float32)

    def step(x: Any, w: Any, b: Any) -> Any:
        how = {"stride": (stride, stride), "padding": (1, 1)}
        return op.relu(op.add_bias(op.conv(x, w, **how), b))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "LEAST_TILES", 1)
        run = trace(step, x, w, b).compile(Device("compiled"))
        assert [i.name for i in run.program.instructions] == ["conv_bias_relu"]
        assert np.array_equal(run(x, w, b), step(x, w, b))
        assert not run(x, w, b).any()
