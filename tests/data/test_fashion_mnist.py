"""Fashion-MNIST: its form and its names, and what is not Fashion-MNIST."""

import gzip
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from pareo.data import fashion_mnist, load, mnist
from pareo.errors import DataError

NAMES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
IMAGES = np.arange(4 * 28 * 28).reshape(4, 28, 28).astype(np.uint8)
LABELS = np.array([9, 0, 3, 8], np.uint8)


def encode(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def fill(folder: Path, arrays: dict[str, np.ndarray], zipped: bool = False) -> Path:
    whole = dict(zip(NAMES, (IMAGES, LABELS, IMAGES[:2], LABELS[:2]), strict=True)) | arrays
    for name, array in whole.items():
        raw = encode(array)
        file = folder / f"{name}-ubyte{'.gz' if zipped else ''}"
        file.write_bytes(gzip.compress(raw) if zipped else raw)
    return folder


@pytest.mark.parametrize("zipped", [False, True])
def test_images_labels_and_names(tmp_path: Path, zipped: bool) -> None:
    data = load(f"fashion-mnist:{fill(tmp_path, {}, zipped)}")
    assert data.name == f"fashion-mnist:{tmp_path}"
    np.testing.assert_array_equal(data.images, IMAGES[:, None], strict=True)
    np.testing.assert_array_equal(data.test_images, IMAGES[:2, None], strict=True)
    assert data.labels.tolist() == LABELS.tolist()
    assert data.test_labels.tolist() == [9, 0]
    assert data.classes == 10
    assert [data.class_names[label] for label in data.labels] == [
        *("Ankle boot", "T-shirt/top", "Dress", "Bag")
    ]


def test_home_and_the_function_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(fill(tmp_path, {})))
    assert load("fashion-mnist:~").class_names == fashion_mnist.CLASS_NAMES
    assert fashion_mnist.read(tmp_path).name == str(tmp_path)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        (NAMES[1], np.array([1, 2, 10, 11], np.uint8), "labels from 0 to 9; got 10 at index 2"),
        (NAMES[3], np.array([1, 255], np.uint8), "expected labels from 0 to 9; got 255 at index 1"),
        (NAMES[0], IMAGES[:, 1:], r"expected uint8 of shape \(N, 28, 28\); got uint8 of shape"),
        (NAMES[3], IMAGES, r"expected uint8 of shape \(N,\); got uint8 of shape"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, name: str, array: np.ndarray, message: str) -> None:
    file = fill(tmp_path, {name: array}, zipped=True) / f"{name}-ubyte.gz"
    with pytest.raises(DataError, match=f"^{re.escape(str(file))}: .*{message}"):
        load(f"fashion-mnist:{tmp_path}")


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (fill(tmp_path, {}) / f"{name}-ubyte").unlink()
    message = f"expected the file {name}-ubyte or {name}-ubyte.gz; found neither"
    with pytest.raises(DataError, match=f"^{re.escape(str(tmp_path))}: {message}"):
        load(f"fashion-mnist:{tmp_path}")
    with pytest.raises(DataError, match=r"nowhere: expected the file train-labels.*found neither"):
        load(f"fashion-mnist:{tmp_path / 'nowhere'}")


def test_digits_are_not_clothes() -> None:
    folder = Path(mnist.__file__).parent / "files" / "mnist"
    with pytest.raises(DataError, match="expected Fashion-MNIST; got the digits of MNIST"):
        load(f"fashion-mnist:{folder}")
