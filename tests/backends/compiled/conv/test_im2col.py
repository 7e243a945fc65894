"""Convolution by columns: several images in one product, and an image in stretches of rows."""

from typing import Any

import numpy as np
import pytest

import pareo.operators as op
from pareo import Device
from pareo.backends.compiled.conv import im2col, small_planes
from pareo.backends.compiled.conv.columns import gather, scatter

CASES = [  # images, channels, height, width, filters, taps, stride, padding
    (5, 5, 7, 9, 40, 3, 2, 1),  # several images in one product, and a rest
    (7, 40, 5, 5, 48, 1, 1, 0),
    (3, 32, 30, 31, 16, 1, 1, 0),  # few filters of one pixel
    (5, 40, 13, 15, 48, 1, 1, 0),  # images that are their own columns, one at a time
    (2, 3, 45, 61, 24, 7, 2, 3),  # in stretches of rows
    (1, 12, 30, 31, 16, 5, 3, 2),  # fewer images than threads
    (3, 7, 40, 33, 40, 3, 1, 2),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_three_passes_equal_numpy(
    monkeypatch: pytest.MonkeyPatch, case: tuple[int, ...], dtype: str
) -> None:
    monkeypatch.setattr(im2col, "COLUMN_BYTES", 64 << 10)
    monkeypatch.setattr(small_planes, "AT_ONCE", 60)
    images, channels, height, width, filters, taps, stride, padding = case
    draw = np.random.default_rng(3).standard_normal
    x = draw((images, channels, height, width)).astype(dtype)
    w = draw((filters, channels, taps, taps)).astype(dtype)
    how: dict[str, Any] = {"stride": stride, "padding": padding}
    found = {}
    for device in (Device("vectorized"), Device("compiled", threads=2)):
        with device:
            y = op.conv(x, w, **how)
            g = np.cos(np.arange(y.size, dtype=dtype)).reshape(y.shape)
            by_x = op.conv_input_gradient(g, w, size=x.shape[2:], **how)
            by_w = op.conv_weight_gradient(x, g, size=w.shape[2:], **how)
        found[device.name] = y, by_x, by_w
    for expected, got in zip(found["vectorized"], found["compiled"], strict=True):
        largest = np.abs(expected).max()  # sums of up to some thousand products, of any sign
        tolerance = 1e-12 if dtype == "float64" else 4e-6
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("width", [1, 7, 8, 9, 16, 17, 33])
def test_short_rows_keep_to_their_bounds(stride: int, width: int) -> None:
    """Rows of every length around a vector's; the numbers on either side stay as they are."""
    height, wide = 2, stride * (width - 1) + 1  # the last window ends with the image
    guarded = np.full(2 + 3 * wide, np.nan, np.float32)
    image = guarded[1:-1].reshape(1, 3, wide)
    image[...] = np.arange(image.size, dtype=np.float32).reshape(image.shape)
    columns = np.full((1, 1 + height * width + 1), np.nan, np.float32)
    gather(columns, 1, image, height, width, 1, 1, 1, stride, 0, 0, 1, 1)
    expected = image[0, :height, ::stride].reshape(-1)
    np.testing.assert_array_equal(columns[0, 1:-1], expected)
    assert np.isnan(columns[0, [0, -1]]).all()
    scatter(image, columns, 1, height, width, 1, 1, 1, stride, 0, 0, 1, 1)
    doubled = np.arange(image.size, dtype=np.float32).reshape(image.shape)
    doubled[0, :height, ::stride] *= 2
    np.testing.assert_array_equal(image, doubled)
    assert np.isnan(guarded[[0, -1]]).all()
