"""Reads IDX files, the array format in which MNIST and similar datasets are published.

A file is two zero bytes, one byte that names the dtype, one byte that counts the dimensions, each
dimension as a big-endian uint32, and then the items, big-endian, the last dimension fastest.
"""

import gzip
import hashlib
import math
import os
import struct
import zlib
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pareo.data.filling import check_expansion, count_rest, native, read_array
from pareo.errors import DataError
from pareo.regular_file import regular

_DTYPES: dict[int, np.dtype[Any]] = {
    0x08: np.dtype(">u1"),
    0x09: np.dtype(">i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
_GZIP_MAGIC = b"\x1f\x8b"


def read(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Return the array in an IDX file, gzipped or not, in this machine's byte order.

    Args:
        path: the file; its first bytes decide whether it is gzipped.

    Raises:
        DataError: the file cannot be read, or is not exactly one complete IDX array.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "labels-idx1-ubyte"
        ...     _ = file.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 0, 4]))
        ...     read(file)
        array([5, 0, 4], dtype=uint8)
    """
    return unpack(Path(path)).array()


@dataclass(frozen=True)
class Unpacked:
    """The bytes of one IDX file whose header matches their number."""

    head: bytes
    items: NDArray[Any]

    def array(self) -> NDArray[Any]:
        """Return the items in this machine's byte order; the same array each time if they are."""
        return native(self.items)

    def sha256(self) -> str:
        """Return the SHA-256 of the unpacked file, in hexadecimal."""
        digest = hashlib.sha256(self.head)
        digest.update(self.items.reshape(-1).view(np.uint8).data)
        return digest.hexdigest()


def unpack(file: Traversable) -> Unpacked:
    """Return the checked bytes of an IDX file: a `Path`, or a resource inside a package.

    It takes no more memory than the header announces, however large a gzipped file would unpack,
    and none at all if the file is too small for what its header announces.
    """
    name = str(file)
    try:
        if isinstance(file, Path):
            regular(file)
        with file.open("rb") as stream:
            size = _size(stream)
            if _is_gzip(stream, name):
                with gzip.open(stream) as plain:
                    return _unpack(plain, name, size, packed=True)
            return _unpack(stream, name, size)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name}: expected a complete gzip file; got an error: {error}") from error
    except OSError as error:
        raise DataError(f"{name}: expected a file to read; got: {error.strerror}") from error


def _is_gzip(stream: IO[bytes], name: str) -> bool:
    start = stream.read(len(_GZIP_MAGIC))
    stream.seek(0)
    if start != _GZIP_MAGIC and name.endswith(".gz"):
        raise DataError(
            f"{name}: expected a gzip file, which starts with the bytes {_hex(_GZIP_MAGIC)}; "
            f"got {_hex(start)}"
        )
    return start == _GZIP_MAGIC


def _size(stream: IO[bytes]) -> int:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return size


def _unpack(
    stream: IO[bytes] | gzip.GzipFile, name: str, size: int, packed: bool = False
) -> Unpacked:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _DTYPES:
        codes = ", ".join(f"{code:02x}" for code in _DTYPES)
        raise DataError(
            f"{name}: expected an IDX file, which starts with the bytes 00 00, a dtype code "
            f"({codes}) and a number of dimensions; got {_hex(magic)}"
        )
    dtype, dimensions = _DTYPES[magic[2]], magic[3]
    sizes = stream.read(4 * dimensions)
    if len(sizes) < 4 * dimensions:
        raise DataError(
            f"{name}: expected a header of {4 + 4 * dimensions:,} bytes for {dimensions} "
            f"dimensions; got {4 + len(sizes):,} bytes"
        )
    shape = struct.unpack(f">{dimensions}I", sizes)
    _check_shape(dtype, shape, name)
    header, wanted = 4 + 4 * dimensions, dtype.itemsize * math.prod(shape)
    place = f"{name}: expected {header + wanted:,} bytes for {dtype.name} of shape {shape}"
    if packed:
        check_expansion(place, wanted, size)
    elif size != header + wanted:
        raise DataError(f"{place}; got {size:,} bytes")
    items, done = read_array(stream, dtype, shape)  # type: ignore[arg-type]
    done += count_rest(stream)  # type: ignore[arg-type]
    if done != wanted:
        raise DataError(f"{place}; got {header + done:,} bytes")
    return Unpacked(magic + sizes, items)


def _check_shape(dtype: np.dtype[Any], shape: tuple[int, ...], name: str) -> None:
    # A shape with a 0 in it needs no bytes, so the length of the file cannot rule out the others.
    try:
        np.broadcast_to(np.zeros((), dtype), shape)
    except ValueError as error:
        raise DataError(
            f"{name}: expected a shape that NumPy can hold; got {len(shape)} dimensions with "
            f"{math.prod(shape):,} items"
        ) from error


def _hex(raw: bytes) -> str:
    return raw.hex(" ") if raw else "no bytes"
