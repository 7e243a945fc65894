"""Synthetic data: any shape, the same for the same seed, and something to learn in it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pareo.data import load, synthetic
from pareo.errors import DataError

pytestmark = pytest.mark.smoke

sizes = st.integers(1, 9)


@given(
    shape=st.one_of(st.tuples(sizes), st.tuples(sizes, sizes, sizes)),
    classes=st.integers(2, 12),
    count=st.integers(2, 150),
)
def test_any_shape(shape: tuple[int, ...], classes: int, count: int) -> None:
    name = f"synthetic:{'x'.join(map(str, shape))}:{classes}:{count}"
    data = load(name)
    assert data.name == name
    assert data.shape == shape
    assert data.classes == classes
    assert data.images.dtype == np.float32
    assert len(data.images) + len(data.test_images) == count
    assert len(data.test_images) == max(1, count // 6)
    held = np.bincount([*data.labels, *data.test_labels], minlength=classes)
    assert held.max() - held.min() <= 1


def test_defaults() -> None:
    data = load("synthetic:3x6x7")
    assert (len(data.images), len(data.test_images), data.classes) == (500, 100, 10)


def test_the_seed_decides() -> None:
    one, same, other = (load("synthetic:1x8x8:3:100", seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.images, same.images)
    np.testing.assert_array_equal(one.labels, same.labels)
    assert (one.images != other.images).mean() > 0.99


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 5, 5), (30,)])
def test_the_nearest_mean_tells_the_classes_apart(shape: tuple[int, ...]) -> None:
    data = synthetic.make(shape, classes=5, count=600)
    means = np.stack([data.images[data.labels == one].mean(0) for one in range(5)])
    distance = ((data.test_images[:, None] - means) ** 2).reshape(100, 5, -1).sum(-1)
    assert (distance.argmin(1) == data.test_labels).mean() > 0.95
    assert data.images.std(0).max() < 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("synthetic", r"expected synthetic:CxHxW\[:CLASSES\[:COUNT\]\], such as .*; got"),
        ("synthetic:", "got 'synthetic:'"),
        ("synthetic:3x32", "got 'synthetic:3x32'"),
        ("synthetic:3x32x-1", "got 'synthetic:3x32x-1'"),
        ("synthetic:1x2x3:4:5:6", "got 'synthetic:1x2x3:4:5:6'"),
        ("synthetic:0x8x8", r"of sizes from 1; got \(0, 8, 8\)"),
        ("synthetic:1x8x8:1", "expected at least 2 classes; got 1"),
        ("synthetic:1x8x8:2:1", "expected at least 2 images; got 1"),
        ("synthetic:1x8x8:0", "expected at least 2 classes; got 0"),
        (f"synthetic:{10**9}x{10**9}x8", "images that fit in memory; got 600 of shape"),
        (f"synthetic:1x8x8:2:{10**25}", "images that fit in memory; got 10,000,000"),
    ],
)
def test_a_wrong_text_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(text)


def test_a_wrong_shape() -> None:
    with pytest.raises(DataError, match=r"synthetic: expected a shape .*; got \(8, 8\)"):
        synthetic.make((8, 8))
