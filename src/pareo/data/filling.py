"""Reads the bytes of an array from a stream, without more memory or time than its file can need.

A header is only a claim. Memory is allocated when the size of the file makes the claim plausible:
a plain file must have exactly these bytes, and a packed one must have a fair share of them.
"""

import math
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pareo.errors import DataError

RATIO = 200  # bytes for each packed one; images of one colour have more, but are no data
FREE = 64 << 20  # bytes that need no reason
CHUNK = 1 << 20
PATIENCE = 64 << 20  # bytes beyond the last one that are counted, for the message


def check_expansion(place: str, wanted: int, packed: int) -> None:
    """Raise `DataError` if so few packed bytes cannot reasonably hold so many.

    >>> check_expansion("a.gz: expected 10 bytes", 10, 5)
    >>> check_expansion("a.gz: expected much", 10**12, 10**6)
    Traceback (most recent call last):
    pareo.errors.DataError: a.gz: expected much; got 1,000,000 packed bytes, which are too few
    """
    if wanted > max(FREE, RATIO * packed):
        raise DataError(f"{place}; got {packed:,} packed bytes, which are too few")


def read_array(
    stream: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...], chunk: int = CHUNK
) -> tuple[NDArray[Any], int]:
    """Return an array filled from a stream, and how many of its bytes were there.

    Args:
        chunk: bytes that are asked for at a time; some decompressors return many times as many.

    >>> import io
    >>> read_array(io.BytesIO(bytes([1, 2, 3])), np.dtype("u1"), (3,))
    (array([1, 2, 3], dtype=uint8), 3)
    """
    body = np.empty(dtype.itemsize * math.prod(shape), np.uint8)
    done = 0
    while done < len(body) and (piece := stream.read(min(chunk, len(body) - done))):
        body[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
    return body.view(dtype).reshape(shape), done


def count_rest(stream: IO[bytes]) -> int:
    """Return how many bytes follow; counting ends soon, since only a message needs the number."""
    rest = 0
    while rest < PATIENCE and (piece := stream.read(CHUNK)):
        rest += len(piece)
    return rest


def native(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array in this machine's byte order; one that has it is not copied."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)
