"""Dataset: what fits together is kept as it is, and each misfit has its own sentence."""

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pareo.data import Dataset
from pareo.data.dataset import count_classes, divide
from pareo.errors import DataError

PIXELS = np.arange(3 * 2 * 4 * 5).reshape(3, 2, 4, 5).astype(np.uint8)


def dataset(**changed: Any) -> Dataset:
    given = {
        "name": "small",
        "images": PIXELS,
        "labels": np.array([0, 2, 1], np.uint8),
        "test_images": PIXELS[:2],
        "test_labels": np.array([1, 1], np.uint8),
        "classes": 3,
    }
    return Dataset(**(given | changed))


def test_what_is_given_is_kept_and_labels_become_int64() -> None:
    data = dataset(class_names=["a", "b", "c"])
    assert data.images is PIXELS
    assert data.labels.dtype == data.test_labels.dtype == np.int64
    assert data.labels.tolist() == [0, 2, 1]
    assert data.shape == (2, 4, 5)
    assert data.class_names == ("a", "b", "c")
    expected = "<Dataset small: 3 images of 2x4x5 uint8, 2 more for testing, 3 classes>"
    assert repr(data) == expected
    with pytest.raises(FrozenInstanceError):
        data.classes = 4  # type: ignore[misc]


def test_a_test_part_may_be_empty() -> None:
    data = dataset(test_images=PIXELS[:0], test_labels=np.zeros(0, int))
    assert data.as_float().test_images.shape == (0, 2, 4, 5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"classes": 0}, "expected at least 1 class; got 0"),
        ({"images": PIXELS[:0]}, "expected at least one image; got none"),
        ({"images": PIXELS.tolist()}, "expected images to be an array of numbers; got list"),
        ({"test_images": PIXELS > 3}, "expected test_images to be an array of numbers; got bool"),
        ({"images": PIXELS[:, 0]}, r"\(N, C, H, W\) or \(N, features\); got \(3, 4, 5\)"),
        ({"images": PIXELS[:, :0]}, r"\(N, C, H, W\) or \(N, features\); got \(3, 0, 4, 5\)"),
        (
            {"test_images": PIXELS[:2, :1]},
            "expected test_images like images, each 2x4x5 uint8; got each 1x4x5 uint8",
        ),
        ({"test_images": PIXELS[:2] / 1}, "each 2x4x5 uint8; got each 2x4x5 float64"),
        (
            {"labels": np.array([0, 1])},
            "expected as many images as labels; got 3 images and 2 labels",
        ),
        (
            {"test_labels": np.array([0])},
            "expected as many test_images as test_labels; got 2 test_images and 1 test_labels",
        ),
        ({"labels": [0, 1, 2]}, r"labels to be whole numbers of shape \(N,\); got list"),
        ({"labels": np.zeros(3)}, r"whole numbers of shape \(N,\); got float64 of shape \(3,\)"),
        (
            {"labels": np.zeros((3, 1), int)},
            r"whole numbers of shape \(N,\); got int64 of shape \(3, 1\)",
        ),
        ({"labels": np.array([0, 3, 4])}, "expected labels from 0 to 2; got 3 at index 1"),
        ({"test_labels": np.array([2, -1])}, "test_labels from 0 to 2; got -1 at index 1"),
        ({"class_names": ("a",)}, "expected 3 class names, one for each class; got 1"),
    ],
)
def test_a_misfit_is_one_sentence(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match="^small: .*" + message + "$"):
        dataset(**changed)


def targets(**changed: Any) -> Dataset:
    given = {"labels": np.array([0.5, -2, 7], np.float32), "classes": 0,
             "test_labels": np.array([1, 3], np.float32)}  # fmt: skip
    return dataset(**(given | changed))


def test_targets_are_kept_as_they_are() -> None:
    labels = np.array([0.5, -2, 7], np.float32)
    data = targets(labels=labels, class_names=["height"])
    assert data.labels is labels
    assert data.has_targets
    assert data.outputs == 1
    expected = "<Dataset small: 3 images of 2x4x5 uint8, 2 more for testing, 1 target>"
    assert repr(data) == expected
    assert not dataset().has_targets
    assert dataset().outputs == 3


def test_several_targets_of_one_image() -> None:
    data = targets(labels=np.eye(3), test_labels=np.eye(3)[:2], class_names=("a", "b", "c"))
    assert data.outputs == 3
    assert repr(data).endswith("2 more for testing, 3 targets>")
    assert targets(labels=np.eye(3), test_images=PIXELS[:0], test_labels=np.zeros((0, 3)))


def test_targets_become_floats_like_the_images() -> None:
    data = targets(labels=np.array([0.1, 1, 2]), test_labels=np.array([0.1, 3]))
    small = data.as_float("float32")
    assert small.labels.dtype == small.test_labels.dtype == small.images.dtype == np.float32
    assert small.labels.tolist() == [np.float32(0.1), 1, 2]
    assert small.as_float("float32") is small
    again = small.as_float("float64")
    assert again.labels.dtype == again.images.dtype == np.float64
    mixed = targets(images=PIXELS / 1, test_images=PIXELS[:2] / 1).as_float("float64")
    assert mixed.labels.dtype == np.float64
    with pytest.raises(DataError, match="small: expected finite numbers in labels"):
        targets(labels=np.array([0, 1, 1e300]), test_labels=np.zeros(2)).as_float("float32")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"classes": 2}, r"whole numbers of shape \(N,\); got float32 of shape \(3,\)"),
        ({"classes": -1}, "expected at least 1 class; got -1"),
        ({"labels": np.array([0, 1, 2])}, "expected at least 1 class; got 0"),
        (
            {"test_labels": np.array([0, 1])},
            r"floats of shape \(N,\) or \(N, targets\); got int64 of shape \(2,\)",
        ),
        ({"labels": [0.5, 1, 2]}, "expected labels to be floats of .*; got list"),
        ({"labels": np.zeros((3, 0))}, r"floats .*; got float64 of shape \(3, 0\)"),
        ({"labels": np.zeros((3, 2, 2))}, r"floats .*; got float64 of shape \(3, 2, 2\)"),
        ({"labels": np.array(0.5)}, r"floats .*; got float64 of shape \(\)"),
        ({"labels": np.zeros(4)}, "expected as many images as labels; got 3 images and 4 labels"),
        ({"labels": np.array([0, 1, np.nan])}, "finite numbers in labels; got NaN or infinity"),
        (
            {"test_labels": np.zeros((2, 1), np.float32)},
            "expected test_labels like labels, each float32; got each 1 float32",
        ),
        ({"test_labels": np.zeros(2)}, "labels, each float32; got each float64"),
        ({"class_names": ("a", "b")}, "expected 1 class names, one for each target; got 2"),
    ],
)
def test_a_misfit_of_targets_is_one_sentence(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match="^small: .*" + message + "$"):
        targets(**changed)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_are_finite(bad: float) -> None:
    images = PIXELS / 1
    images[1, 1, 2, 3] = bad
    with pytest.raises(DataError, match="expected finite numbers in images; got NaN or infinity"):
        dataset(images=images, test_images=PIXELS[:2] / 1)


@given(pixels=hnp.arrays(np.uint8, st.tuples(st.integers(1, 4), st.integers(1, 9))))
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_bytes_are_scaled_to_one(dtype: str, pixels: np.ndarray) -> None:
    labels = np.zeros(len(pixels), int)
    data = Dataset("bytes", pixels, labels, pixels, labels, 1, ("one",)).as_float(dtype)
    expected = (pixels / 255).astype(dtype)
    # NumPy divides float16 in float32, so that the two may differ by one rounding.
    np.testing.assert_allclose(data.images, expected, rtol=2 * np.finfo(dtype).eps)
    assert data.images.dtype == data.test_images.dtype == dtype
    assert data.images.min() >= 0
    assert data.images.max() <= 1
    assert data.class_names == ("one",)
    assert data.as_float(dtype) is data


def test_other_types_are_converted_but_not_scaled() -> None:
    numbers = np.array([[-300, 1000]], np.int16)
    data = Dataset("numbers", numbers, np.array([0]), numbers, np.array([0]), 1)
    assert data.as_float("float32").images.tolist() == [[-300, 1000]]


def test_as_float_refuses_whole_numbers_and_overflow() -> None:
    with pytest.raises(DataError, match="small: as_float expects a float dtype; got int32"):
        dataset().as_float("int32")
    large = np.array([[1e300]])
    with pytest.raises(DataError, match="expected finite numbers in images"):
        Dataset("large", large, np.array([0]), large, np.array([0]), 1).as_float("float32")


@given(labels=hnp.arrays(np.int64, st.integers(1, 60), elements=st.integers(0, 6)))
def test_divide_takes_the_last_sixth_of_each_class(labels: np.ndarray) -> None:
    data = divide("numbered", np.arange(len(labels))[:, None], labels)
    train, test = data.images[:, 0], data.test_images[:, 0]
    assert sorted([*train, *test]) == list(range(len(labels)))
    np.testing.assert_array_equal(labels[train], data.labels)
    np.testing.assert_array_equal(labels[test], data.test_labels)
    for part in (train, test):
        assert (np.diff(part) > 0).all()
    for one in np.unique(labels):
        mine, last = train[data.labels == one], test[data.test_labels == one]
        count = len(mine) + len(last)
        assert len(last) == (max(1, count // 6) if count > 1 else 0)
        assert len(last) == 0 or mine.max() < last.min()


def test_divide_checks_first() -> None:
    with pytest.raises(DataError, match="x: expected labels from 0 to 3; got -1 at index 0"):
        divide("x", np.zeros((2, 1)), np.array([-1, 3]))
    with pytest.raises(DataError, match="x: expected labels to be whole numbers"):
        divide("x", np.zeros((2, 1)), np.array(["a", "b"]))
    with pytest.raises(DataError, match="x: expected at least one image; got none"):
        divide("x", np.zeros((0, 1)), np.array([], int))


def test_classes_are_counted_over_all_parts() -> None:
    assert count_classes(np.array([], int)) == 1
    assert count_classes(np.array([1], np.uint8), np.array([255], np.uint8)) == 256
