"""Dataset.channel_statistics: the mean and deviation of what a network is given."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pareo.data import ChannelStatistics, Dataset, load
from pareo.data import statistics as module
from pareo.errors import DataError


def found(images: np.ndarray) -> ChannelStatistics:
    labels = np.zeros(len(images), int)
    return Dataset("some", images, labels, images[:0], labels[:0], 1).channel_statistics()


@settings(deadline=None)
@given(
    images=hnp.arrays(
        np.uint8, st.tuples(*[st.integers(1, 5)] * 4) | st.tuples(*[st.integers(1, 9)] * 2)
    ),
    block=st.sampled_from([1, 7, 1 << 20]),
)
def test_bytes_are_scaled_and_blocks_add_up(images: np.ndarray, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        mean, deviation = found(images)
    floats = images.astype(float) / 255
    axes = (0, 2, 3) if images.ndim == 4 else (0,)
    np.testing.assert_allclose(mean, floats.mean(axes), rtol=1e-13, atol=1e-15)
    # NumPy's own result has an error of a few roundings of the mean, at most 1.
    np.testing.assert_allclose(deviation, floats.std(axes), rtol=1e-12, atol=1e-14)
    assert all(type(number) is float for number in (*mean, *deviation))
    assert len(mean) == len(deviation) == images.shape[1]


def test_known_values() -> None:
    images = np.array([[[[0, 255]], [[51, 51]]], [[[0, 255]], [[102, 0]]]], np.uint8)
    mean, deviation = found(images)
    assert mean == (0.5, 0.2)
    assert deviation == pytest.approx((0.5, (0.04 / 2) ** 0.5))


def test_the_published_statistics_of_mnist() -> None:
    mean, deviation = load("mnist").channel_statistics()
    assert (round(mean[0], 4), round(deviation[0], 4)) == (0.1307, 0.3081)


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e9])
def test_a_small_deviation_beside_a_large_mean(offset: float) -> None:
    noise = np.random.default_rng(0).normal(size=(50, 2, 8, 8))
    images = noise + offset
    mean, deviation = found(images)
    # The images themselves are rounded, to 1e-7 at an offset of 1e9.
    exact = images - offset
    np.testing.assert_allclose(np.array(mean) - offset, exact.mean((0, 2, 3)), atol=2e-7)
    np.testing.assert_allclose(deviation, exact.std((0, 2, 3)), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8"])
def test_a_channel_with_one_value_has_no_deviation(dtype: str) -> None:
    images = np.full((301, 1, 7, 5), 0.1 if dtype.startswith("f") else 10).astype(dtype)
    value = float(images[0, 0, 0, 0]) / (255 if dtype == "uint8" else 1)
    assert found(images) == ((value,), (0.0,))


def test_the_test_part_has_no_influence() -> None:
    images = np.array([[0.0], [2.0]])
    data = Dataset("some", images, np.array([0, 0]), images + 50, np.array([0, 0]), 1)
    assert data.channel_statistics() == ((1.0,), (1.0,))


@pytest.mark.parametrize("large", [1e200, 1.7e308])
def test_squares_that_are_not_finite(large: float) -> None:
    with pytest.raises(DataError, match="some: expected images with finite squares"):
        found(np.array([[large], [-large]]))
