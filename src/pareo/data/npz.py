"""Reads a dataset from an NPZ file, a zip of NumPy arrays; objects are never unpickled."""

import math
import os
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pareo.data.dataset import Dataset, count_classes, divide
from pareo.errors import DataError

# The names of pareo and of Keras: images, labels, and the same for testing.
_NAMES = (
    ("images", "labels", "test_images", "test_labels"),
    ("x_train", "y_train", "x_test", "y_test"),
)
_CHANNELS = (1, 3, 4)


def read(path: str | os.PathLike[str]) -> Dataset:
    """Return the dataset in an NPZ file.

    The arrays are `images` and `labels`, and `test_images` and `test_labels` if there are any; or
    `x_train`, `y_train`, `x_test` and `y_test`, as Keras names them. Without a test part, the last
    sixth of each class becomes one. Images may be (N, features), (N, H, W), (N, C, H, W), or
    (N, H, W, C) with 1, 3 or 4 channels; labels may be (N,) or (N, 1).

    Raises:
        DataError: the file cannot be read, or does not hold such arrays.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "small.npz"
        ...     np.savez(file, images=np.zeros((12, 8, 8), np.uint8), labels=np.arange(12) % 2)
        ...     data = read(file)
        >>> data.images.shape, data.test_labels
        ((10, 1, 8, 8), array([0, 1]))
    """
    file, name = Path(path), str(path)
    try:
        with zipfile.ZipFile(file) as archive:
            arrays = {key: _array(archive, key, name) for key in _keys(archive, name)}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(
            f"{name}: expected a complete NPZ file; got {_size(file)} that are not one: {error}"
        ) from error
    except OSError as error:
        raise DataError(f"{name}: expected a file to read; got: {error.strerror}") from error
    images, labels, *test = arrays.values()
    images, labels = _channels_first(images), _flat(labels)
    if not test:
        return divide(name, images, labels)
    test_images, test_labels = _channels_first(test[0]), _flat(test[1])
    classes = count_classes(labels, test_labels)
    return Dataset(name, images, labels, test_images, test_labels, classes)


def _keys(archive: zipfile.ZipFile, name: str) -> tuple[str, ...]:
    found = [member.removesuffix(".npy") for member in archive.namelist()]
    for keys in _NAMES:
        if set(keys) <= set(found):
            return keys
        half = set(keys[2:]) & set(found)
        if set(keys[:2]) <= set(found) and not half:
            return keys[:2]
    raise DataError(
        f"{name}: expected the arrays images and labels, with test_images and test_labels or "
        f"without, or x_train, y_train, x_test and y_test; got {', '.join(found) or 'no arrays'}"
    )


def _array(archive: zipfile.ZipFile, key: str, name: str) -> NDArray[Any]:
    info = archive.getinfo(f"{key}.npy" if f"{key}.npy" in archive.namelist() else key)
    try:
        with archive.open(info) as stream:
            shape, dtype = _header(stream)
            header = stream.tell()
    except (ValueError, SyntaxError, TypeError, tokenize.TokenError) as error:
        raise DataError(
            f"{name}: expected '{key}' to be a NumPy array; got {info.file_size:,} bytes "
            "that are not one"
        ) from error
    if dtype.hasobject:
        raise DataError(
            f"{name}: expected '{key}' to hold numbers; got Python objects, which are never loaded"
        )
    # Checked first: NumPy would allocate the memory that a false header announces.
    wanted = header + dtype.itemsize * math.prod(shape)
    if wanted != info.file_size:
        raise DataError(
            f"{name}: expected {wanted:,} bytes for '{key}', {dtype.name} of shape {shape}; "
            f"got {info.file_size:,} bytes"
        )
    with archive.open(info) as stream:
        array = npy.read_array(stream, allow_pickle=False)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = npy.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = npy.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, _, dtype = npy.read_array_header_2_0(stream)
    else:
        raise ValueError(f"version {version}")
    np.broadcast_to(np.zeros((), np.int8), shape)  # raises an error if no array can have this shape
    return shape, dtype


def _channels_first(images: NDArray[Any]) -> NDArray[Any]:
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[3] in _CHANNELS and images.shape[1] not in _CHANNELS:
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return images


def _flat(labels: NDArray[Any]) -> NDArray[Any]:
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def _size(file: Path) -> str:
    return f"{file.stat().st_size:,} bytes"
