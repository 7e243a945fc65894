"""Reads a dataset from an NPZ file, a zip of NumPy arrays; objects are never unpickled."""

import lzma
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pareo.data import npy
from pareo.data.dataset import Dataset, count_classes, divide
from pareo.data.filling import CHUNK, check_expansion
from pareo.errors import DataError
from pareo.regular_file import regular

# The names of pareo and of Keras: images, labels, and the same for testing.
_NAMES = (
    ("images", "labels", "test_images", "test_labels"),
    ("x_train", "y_train", "x_test", "y_test"),
)
_CHANNELS = (1, 3, 4)
_SMALL_CHUNK = 4096  # zipfile unpacks all that bzip2 and LZMA make of what it reads at a time
_FEW = 12  # names that an error lists


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
        with zipfile.ZipFile(regular(file)) as archive:
            arrays = {key: _array(archive, key, file) for key in _keys(archive, name)}
    except (
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        NotImplementedError,
        RuntimeError,
        OverflowError,
        ValueError,
    ) as error:
        if isinstance(error, DataError):
            raise
        reason = " ".join(ascii(str(error))[1:-1].split())[:200]
        raise DataError(
            f"{name}: expected a complete NPZ file; got {_size(file)} that are not one: {reason}"
        ) from error
    except OSError as error:
        # The bzip2 module has no other exception for damaged data, and gives it no number.
        raise DataError(
            f"{name}: expected a file to read; got: {error.strerror or error}"
        ) from error
    except MemoryError as error:
        raise DataError(f"{name}: does not fit in memory when it is unpacked") from error
    images, labels, *test = arrays.values()
    images, labels = _channels_first(images), _flat(labels)
    if not test:
        return divide(name, images, labels)
    test_images, test_labels = _channels_first(test[0]), _flat(test[1])
    classes = count_classes(labels, test_labels)
    return Dataset(name, images, labels, test_images, test_labels, classes)


def _keys(archive: zipfile.ZipFile, name: str) -> tuple[str, ...]:
    found = [member.removesuffix(".npy") for member in archive.namelist()]
    known = set(found)
    for keys in _NAMES:
        if set(keys) <= known:
            return keys
        if set(keys[:2]) <= known and not set(keys[2:]) & known:
            return keys[:2]
    shown = [name if name.isprintable() else ascii(name) for name in found[:_FEW]]
    more = f" and {len(found) - _FEW:,} more" if len(found) > _FEW else ""
    raise DataError(
        f"{name}: expected the arrays images and labels, with test_images and test_labels or "
        f"without, or x_train, y_train, x_test and y_test; "
        f"got {', '.join(shown) or 'no arrays'}{more}"
    )


def _array(archive: zipfile.ZipFile, key: str, file: Path) -> NDArray[Any]:
    info = archive.getinfo(f"{key}.npy" if f"{key}.npy" in archive.namelist() else key)
    plain = info.compress_type == zipfile.ZIP_STORED
    packed = min(info.compress_size, file.stat().st_size)
    place = f"{file}: expected {info.file_size:,} bytes for '{key}'"
    check_expansion(place, info.file_size, packed)  # first: opening it unpacks some of it
    with archive.open(info) as stream:
        try:
            header = npy.read_header(stream)
        except npy.NotNumbers as error:
            raise DataError(f"{file}: expected '{key}' to hold numbers; got {error}") from error
        except npy.NotAnArray as error:
            raise DataError(
                f"{file}: expected '{key}' to be a NumPy array; got {info.file_size:,} bytes "
                "that are not one"
            ) from error
        place = (
            f"{file}: expected {header.size:,} bytes for '{key}', {header.dtype.name} of shape "
            f"{header.shape}"
        )
        if header.size != info.file_size:
            raise DataError(f"{place}; got {info.file_size:,} bytes")
        if plain and header.size > packed:
            raise DataError(f"{place}; got {packed:,} bytes")
        quick = plain or info.compress_type == zipfile.ZIP_DEFLATED
        array, done = npy.read_body(stream, header, CHUNK if quick else _SMALL_CHUNK)
        # The end is read, too: there zipfile compares the checksum.
        if header.length + done != header.size or stream.read(1):
            raise DataError(f"{place}; got {header.length + done:,} bytes")
    return array


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
