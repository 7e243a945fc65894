"""Loops that only move bytes: the limit of a memory-bound operator."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from pareo.backends.compiled.runtime.jit import jit

LEAST = 0.004  # seconds of one sample: long enough to hide a clock's tick and a thread's start
APART = 80  # floats between arrays: addresses that differ by multiples of 4096 B may conflict


@jit
def copy(target: Any, source: Any, times: int) -> None:
    """Read one array, write another."""
    for _ in range(times):
        for i in range(len(target)):
            target[i] = source[i]


@jit
def triad(target: Any, a: Any, b: Any, times: int) -> None:
    """Read two arrays, write a third: STREAM's triad."""
    for _ in range(times):
        for i in range(len(target)):
            target[i] = a[i] + np.float32(0.4) * b[i]


@jit
def read(source: Any, times: int) -> Any:
    """Read one array."""
    total = np.float32(0)
    for _ in range(times):
        for i in range(len(source)):
            total += source[i]
    return total


LOOPS: dict[str, tuple[Any, int]] = {"copy": (copy, 2), "triad": (triad, 3), "read": (read, 1)}


class Room:
    """Memory that streams use one at a time; it grows to the largest of them."""

    def __init__(self) -> None:
        self._floats = np.ones(0, np.float32)

    def arrays(self, count: int, length: int) -> list[Any]:
        """`count` arrays of `length` floats."""
        step = length + APART
        if len(self._floats) < count * step:
            self._floats = np.ones(count * step, np.float32)
        return [self._floats[n * step : n * step + length] for n in range(count)]


class Stream:
    """A loop over arrays of `nbytes` in all, each thread on its own part.

    >>> Stream("copy", 1 << 16, threads=1).rate(Room()) > 0
    True
    """

    def __init__(self, name: str, nbytes: int, threads: int) -> None:
        self._loop, self._arrays = LOOPS[name]
        self._threads = threads
        self._length = max(16, nbytes // 4 // self._arrays // threads // 16 * 16)
        self._times = 1

    def rate(self, room: Room) -> float:
        """Bytes a second, read and written: the best of three."""
        arrays = room.arrays(self._arrays * self._threads, self._length)
        parts = [arrays[n :: self._threads] for n in range(self._threads)]
        with ThreadPoolExecutor(self._threads) as pool:
            self._run(parts, pool)  # compiles, and fills the caches
            took = self._run(parts, pool)
            while took < LEAST:
                more = 1.5 * LEAST / max(took, 1e-6)
                self._times = max(self._times + 1, int(self._times * min(more, 100)))
                took = self._run(parts, pool)
            took = min(took, self._run(parts, pool), self._run(parts, pool))
        return self._length * 4 * len(arrays) * self._times / took

    def _run(self, parts: list[list[Any]], pool: ThreadPoolExecutor) -> float:
        start = time.perf_counter()
        if len(parts) == 1:
            self._loop(*parts[0], self._times)
        else:
            list(pool.map(lambda arrays: self._loop(*arrays, self._times), parts))
        return time.perf_counter() - start
