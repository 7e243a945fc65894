"""MNIST: the shipped copy is whole and cached, and a folder is checked as far as asked."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from pareo.data import mnist
from pareo.errors import DataError

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
SHIPPED = Path(mnist.__file__).parent / "files" / "mnist"


def images(count: int, side: int = 28) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in (count, side, side))
    return b"\0\0\x08\x03" + sizes + bytes(i % 256 for i in range(count * side * side))


def labels(count: int) -> bytes:
    return b"\0\0\x08\x01" + count.to_bytes(4, "big") + bytes(i % 10 for i in range(count))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder of MNIST's form with 3 training and 2 test images, one file of four gzipped."""
    for name, raw in zip(NAMES, (images(3), labels(3), images(2), labels(2)), strict=True):
        (tmp_path / name).write_bytes(raw)
    (tmp_path / NAMES[0]).unlink()
    (tmp_path / f"{NAMES[0]}.gz").write_bytes(gzip.compress(images(3)))
    return tmp_path


def test_the_shipped_copy() -> None:
    digits = mnist.load()
    assert digits.train_images.shape == (60_000, 28, 28)
    assert digits.test_images.shape == (10_000, 28, 28)
    assert digits.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert digits.test_labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    # The published mean and deviation of the training pixels, to their four decimals.
    pixels = digits.train_images / 255
    assert (round(pixels.mean(), 4), round(pixels.std(), 4)) == (0.1307, 0.3081)


def test_the_shipped_copy_is_read_once_and_cannot_be_altered() -> None:
    digits = mnist.load()
    assert mnist.load() is digits
    for array in vars(digits).values():
        assert array.dtype == np.uint8
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_the_readme_lists_the_same_sums() -> None:
    text = (SHIPPED / "README.md").read_text(encoding="utf-8")
    assert "CC BY-SA 3.0" in text
    for name, sha256 in mnist.SHA256.items():
        assert any(name in line and sha256 in line for line in text.splitlines())


def test_a_folder_with_the_real_files_passes_the_check() -> None:
    digits = mnist.load(SHIPPED)
    np.testing.assert_array_equal(digits.train_images, mnist.load().train_images, strict=True)


def test_a_folder_of_the_same_form_unchecked(small: Path) -> None:
    data = mnist.load(small, check=False)
    assert data.train_images.shape == (3, 28, 28)
    assert data.train_images[0, 0, :3].tolist() == [0, 1, 2]
    assert data.test_labels.tolist() == [0, 1]
    assert not data.train_images.flags.writeable


def test_a_folder_of_the_same_form_is_not_mnist(small: Path) -> None:
    with pytest.raises(DataError, match=f"{NAMES[0]}.gz: expected MNIST's own file, with SHA-256"):
        mnist.load(small)


@pytest.mark.parametrize("name", NAMES)
def test_one_altered_byte_is_noticed(tmp_path: Path, name: str) -> None:
    for other in NAMES:
        (tmp_path / f"{other}.gz").symlink_to(SHIPPED / f"{other}.gz")
    raw = bytearray(gzip.decompress((SHIPPED / f"{name}.gz").read_bytes()))
    raw[len(raw) // 2] ^= 1
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(DataError, match=f"{name}: expected MNIST's own file, with SHA-256 .*; got"):
        mnist.load(tmp_path)
    assert mnist.load(tmp_path, check=False).test_labels.shape == (10_000,)


def test_a_missing_file(small: Path) -> None:
    (small / NAMES[3]).unlink()
    with pytest.raises(DataError, match=f"the file {NAMES[3]} or {NAMES[3]}.gz; found neither"):
        mnist.load(small, check=False)
    with pytest.raises(DataError, match=r"nowhere: expected the file .*; found neither"):
        mnist.load(small / "nowhere")


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        (
            NAMES[2],
            images(2, side=32),
            r"expected uint8 of shape \(N, 28, 28\); got uint8 of shape",
        ),
        (NAMES[1], images(3), r"expected uint8 of shape \(N,\); got uint8 of shape \(3, 28, 28\)"),
        (NAMES[1], b"\0\0\x08\0\x05", r"expected uint8 of shape \(N,\); got uint8 of shape \(\)"),
        (NAMES[1], b"\0\0\x09" + labels(3)[3:], r"shape \(N,\); got int8 of shape \(3,\)"),
        (NAMES[1], labels(4), "as many train images as labels; got 3 images and 4 labels"),
        (NAMES[3], labels(2)[:-1], "expected 10 bytes for uint8 of shape .2,.; got 9 bytes"),
    ],
)
def test_a_wrong_shape(small: Path, name: str, raw: bytes, message: str) -> None:
    (small / name).write_bytes(raw)
    with pytest.raises(DataError, match=message):
        mnist.load(small, check=False)
