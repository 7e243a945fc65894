"""Reads NPY files, NumPy's format for one array, from files that may be hostile.

The header is a Python expression. Here it is matched, not evaluated, and only arrays of numbers are
read. Nothing is allocated before the size in the header matches the size of the file.
"""

import math
import os
import re
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pareo.data.filling import CHUNK, native, read_array
from pareo.errors import DataError
from pareo.regular_file import regular

_MAGIC = b"\x93NUMPY"
_LENGTHS = {(1, 0): 2, (2, 0): 4, (3, 0): 4}  # bytes of the header's length, by version
_LONGEST = 10_000  # characters of a header, as in NumPy
_DIMENSIONS = 32
_DESCR = re.compile(r"""['"]descr['"]\s*:\s*['"]([<>|=]?)([A-Za-z?])(\d{0,3})['"]\s*[,}]""")
_RECORDS = re.compile(r"""['"]descr['"]\s*:\s*\[""")
_ORDER = re.compile(r"""['"]fortran_order['"]\s*:\s*(True|False)\s*[,}]""")
_SHAPE = re.compile(r"""['"]shape['"]\s*:\s*\(((?:\s*\d{1,18}L?\s*,)*(?:\s*\d{1,18}L?)?\s*)\)""")


class NotAnArray(ValueError):
    """The bytes are no NPY header; the message is for `DataError`."""


class NotNumbers(NotAnArray):
    """The array holds something else than numbers."""


class Header(NamedTuple):
    """What an array is, as its file declares it, and the length of the header in bytes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    length: int

    @property
    def size(self) -> int:
        """The bytes of the header and the array."""
        return self.length + self.dtype.itemsize * math.prod(self.shape)


def read(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Return the array in an NPY file, in this machine's byte order.

    Raises:
        DataError: the file cannot be read, or is not exactly one array of numbers.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(Path(folder) / "one.npy", np.arange(3, dtype=">i2"))
        ...     read(Path(folder) / "one.npy")
        array([0, 1, 2], dtype=int16)
    """
    file = Path(path)
    try:
        with regular(file).open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            try:
                header = read_header(stream)
            except NotAnArray as error:
                raise DataError(f"{file}: expected a .npy file of numbers; got {error}") from error
            if header.size != size:
                raise DataError(
                    f"{file}: expected {header.size:,} bytes for {header.dtype.name} of shape "
                    f"{header.shape}; got {size:,} bytes"
                )
            array, done = read_body(stream, header)
    except OSError as error:
        raise DataError(f"{file}: expected a file to read; got: {error.strerror}") from error
    except MemoryError as error:
        raise DataError(f"{file}: has {size:,} bytes, which do not fit in memory") from error
    if header.length + done != size:
        raise DataError(f"{file}: expected {size:,} bytes; got {header.length + done:,}")
    return array


def read_header(stream: IO[bytes]) -> Header:
    """Return what a stream declares; it is then at the first item.

    Raises:
        NotAnArray: it is not an array of numbers.
    """
    magic = stream.read(len(_MAGIC) + 2)
    version = tuple(magic[len(_MAGIC) :])
    if magic[: len(_MAGIC)] != _MAGIC or version not in _LENGTHS:
        raise NotAnArray(f"a file that starts with {magic.hex(' ') or 'no bytes'}")
    count = _LENGTHS[version]
    length = int.from_bytes(stream.read(count), "little")
    if length > _LONGEST:
        raise NotAnArray(f"a header of {length:,} bytes")
    raw = stream.read(length)
    if len(raw) < length:
        raise NotAnArray("an incomplete header")
    return _parsed(raw.decode("latin1"), len(magic) + count + length)


def _parsed(text: str, length: int) -> Header:
    order, sizes = _ORDER.search(text), _SHAPE.search(text)
    if not text.lstrip().startswith("{") or order is None or sizes is None:
        raise NotAnArray("a header without order and shape")
    shape = tuple(int(size.strip(" L")) for size in sizes[1].split(",") if size.strip())
    dtype = _dtype(text)
    try:
        if len(shape) > _DIMENSIONS:
            raise ValueError
        np.broadcast_to(np.zeros((), dtype), shape)  # an error if no array can have this shape
    except ValueError:
        raise NotAnArray(f"{len(shape)} dimensions that NumPy cannot hold") from None
    return Header(dtype, shape, order[1] == "True", length)


def _dtype(text: str) -> np.dtype[Any]:
    found = _DESCR.search(text)
    if found is None:
        if _RECORDS.search(text):
            raise NotNumbers("records")
        raise NotAnArray("a header without dtype")
    if found[2] == "O":
        raise NotNumbers("Python objects, which are never loaded")
    try:
        dtype = np.dtype("".join(found.groups()))
    except (TypeError, ValueError):
        raise NotAnArray(f"the dtype {''.join(found.groups())}") from None
    if dtype.kind not in "biuf" or not dtype.itemsize:
        raise NotNumbers(dtype.name)
    return dtype


def read_body(stream: IO[bytes], header: Header, chunk: int = CHUNK) -> tuple[NDArray[Any], int]:
    """Return the array after a header, in this machine's byte order, and how many bytes it had."""
    shape = header.shape[::-1] if header.fortran else header.shape
    array, done = read_array(stream, header.dtype, shape, chunk)
    return native(array.T if header.fortran else array), done
