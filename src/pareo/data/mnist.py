"""MNIST, the handwritten digits that the small networks of the papers are trained on."""

import os
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pareo.data import idx
from pareo.errors import DataError

# SHA-256 of the unpacked files, as in files/mnist/README.md.
SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


@dataclass(frozen=True, eq=False)
class Mnist:
    """Images (N, 28, 28) and labels (N,), all uint8 and read-only; MNIST has 60,000 and 10,000."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]


def load(folder: str | os.PathLike[str] | None = None, *, check: bool = True) -> Mnist:
    """Return MNIST from the files included in pareo, or from a folder.

    Args:
        folder: the folder of the four IDX files, under their original names, each with or without
            `.gz`. None is the included copy, which is read once and cached.
        check: whether the files in `folder` must be MNIST itself, byte for byte. False accepts
            any data in its format, such as Fashion-MNIST. The included copy is always checked.

    Raises:
        DataError: a file is missing, is not an IDX file, or has the wrong shape or checksum.

    Example:
        >>> digits = load()
        >>> digits.train_images.shape, digits.test_images.shape
        ((60000, 28, 28), (10000, 28, 28))
        >>> digits.train_labels[:5]
        array([5, 0, 4, 1, 9], dtype=uint8)
    """
    if folder is None:
        return _shipped()
    return _load(Path(folder), check)


@cache
def _shipped() -> Mnist:
    return _load(resources.files("pareo.data") / "files" / "mnist", check=True)


def _load(folder: Traversable, check: bool) -> Mnist:
    train_images, train_labels = _pair(folder, "train", check)
    test_images, test_labels = _pair(folder, "t10k", check)
    return Mnist(train_images, train_labels, test_images, test_labels)


def _pair(
    folder: Traversable, part: str, check: bool
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    images = _read(folder, f"{part}-images-idx3-ubyte", (28, 28), check)
    labels = _read(folder, f"{part}-labels-idx1-ubyte", (), check)
    if len(images) != len(labels):
        raise DataError(
            f"{folder}: expected as many {part} images as labels; "
            f"got {len(images):,} images and {len(labels):,} labels"
        )
    return images, labels


def _read(
    folder: Traversable, name: str, item_shape: tuple[int, ...], check: bool
) -> NDArray[np.uint8]:
    file = find(folder, name)
    unpacked = idx.unpack(file)
    array = unpacked.array()
    if array.dtype != np.uint8 or array.ndim == 0 or array.shape[1:] != item_shape:
        wanted = "(N, 28, 28)" if item_shape else "(N,)"
        raise DataError(
            f"{file}: expected uint8 of shape {wanted}; got {array.dtype.name} of shape "
            f"{array.shape}"
        )
    if check and (sha256 := unpacked.sha256()) != SHA256[name]:
        raise DataError(
            f"{file}: expected MNIST's own file, with SHA-256 {SHA256[name]} when unpacked; "
            f"got {sha256}"
        )
    array.setflags(write=False)
    return array


def find(folder: Traversable, name: str) -> Traversable:
    """Return the file of this name in a folder, or else the file with `.gz` after it."""
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            return file
    raise DataError(f"{folder}: expected the file {name} or {name}.gz; found neither")
