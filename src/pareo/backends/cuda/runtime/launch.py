"""Launches the kernels in `kernels/`, by file and name, for the dtype of an array."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from pareo.backends.cuda.runtime import source

Numbers: TypeAlias = "int | Sequence[Numbers]"

REALS = {"f": "float", "d": "double"}
THREADS = 256
MOST_BLOCKS = 1 << 16  # enough for a kernel with a grid-stride loop
MOST_AXES = 8  # as in common.cuh
NULL = np.uint64(0)  # a null pointer, as a kernel's argument


@cache
def kernel(file: str, name: str, kind: str) -> Any:
    """A kernel of a file, compiled for the dtype with this character."""
    return source.load(f"kernels/{file}.cu", Real=REALS[kind]).function(name)


def over(count: int, file: str, name: str, kind: str, *arguments: Any) -> None:
    """Launch a kernel with a grid-stride loop over `count` elements."""
    if count:
        blocks = min(-(-count // THREADS), MOST_BLOCKS)
        kernel(file, name, kind)((blocks,), (THREADS,), arguments)


def planes(count: int, pixels: int, file: str, name: str, kind: str, *arguments: Any) -> None:
    """Launch a kernel where blockIdx.x is a plane and the threads share its pixels."""
    if count and pixels:
        threads = min(THREADS, -(-pixels // 32) * 32)
        grid = (count, min(-(-pixels // threads), MOST_BLOCKS - 1))
        kernel(file, name, kind)(grid, (threads,), arguments)


def blocks(count: int, threads: int, file: str, name: str, kind: str, *arguments: Any) -> None:
    """Launch a kernel of `count` blocks."""
    if count:
        kernel(file, name, kind)((count,), (threads,), arguments)


def threads_for(length: int, most: int = 1024) -> int:
    """The number of threads that share a row: a power of two, at least a warp.

    >>> threads_for(10), threads_for(100), threads_for(10**6)
    (32, 128, 1024)
    """
    return max(32, min(most, 1 << max(0, length - 1).bit_length()))


def struct(*numbers: Numbers, of: type[np.signedinteger[Any]] = np.int64) -> np.ndarray:
    """Integers as one argument passed by value: a struct of `Size`, or of int for np.int32."""
    flat = np.fromiter(_flat(numbers), of)
    return flat.view([("", of, flat.size)])


def _flat(numbers: Sequence[Numbers]) -> Iterator[int]:
    for number in numbers:
        if isinstance(number, Sequence):
            yield from _flat(number)
        else:
            yield int(number)
