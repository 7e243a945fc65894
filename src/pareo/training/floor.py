"""The floor beneath a training step: how fast this machine multiplies and copies, measured here."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from pareo.backends import blas
from pareo.device import Device

SIZE = 1536
COPIED = 1 << 26  # bytes: far more than caches hold
REPEATS = 6


_peaks: dict[tuple[int, str], float] = {}


def matrix_peak(threads: int, dtype: str = "float32", reached: float = 0.0) -> float:
    """FLOP/s of a large matrix product on this many threads: the best of a few, measured once.

    Work that has `reached` more says that it was measured in a bad moment: then it is again.

    >>> matrix_peak(1) == matrix_peak(1) > 0
    True
    """
    known = _peaks.get((threads, dtype), 0.0)
    if not known or reached > known:
        blas.threads(threads)
        a = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(dtype)
        out = np.empty_like(a)
        found = 2 * SIZE**3 / _best(lambda: np.matmul(a, a, out=out))
        known = _peaks[threads, dtype] = max(known, found)
    return known


@cache
def copy_bandwidth(threads: int) -> float:
    """Bytes per second, read plus written, of a large copy on this many threads.

    >>> copy_bandwidth(1) > 0
    True
    """
    source, target = np.ones(COPIED, np.uint8), np.zeros(COPIED, np.uint8)
    parts = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
    with ThreadPoolExecutor(threads) as pool:
        return 2 * COPIED / _best(lambda: list(pool.map(lambda pair: np.copyto(*pair), parts)))


def _best(work: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def peak(device: Device, dtype: str = "float32", reached: float = 0.0) -> float | None:
    """The peak that a device's work is held against; None where it cannot be measured yet."""
    if device.name == "cuda":
        return None
    return matrix_peak(device.threads, dtype, reached)


def floor_seconds(flops: float, moved: float, device: Device, dtype: str) -> float | None:
    """The least seconds for so many FLOPs and bytes, whichever takes longer; None if unknown."""
    limit = peak(device, dtype)
    if limit is None:
        return None
    return max(flops / limit, moved / copy_bandwidth(device.threads))
