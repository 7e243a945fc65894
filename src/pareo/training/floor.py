"""The floor beneath a training step: how fast this machine multiplies matrices, measured here."""

import time
from functools import cache

import numpy as np

from pareo.backends import blas
from pareo.device import Device

SIZE = 1536
REPEATS = 6


@cache
def matrix_peak(threads: int, dtype: str = "float32") -> float:
    """FLOP/s of a large matrix product on this many threads: the best of a few, measured once.

    >>> matrix_peak(1) == matrix_peak(1) > 0
    True
    """
    blas.threads(threads)
    a = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(dtype)
    out = np.empty_like(a)
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        np.matmul(a, a, out=out)
        best = min(best, time.perf_counter() - start)
    return float(2 * SIZE**3 / best)


def peak(device: Device, dtype: str = "float32") -> float | None:
    """The peak that a device's work is held against; None where it cannot be measured yet."""
    if device.name == "cuda":
        return None
    return matrix_peak(device.threads, dtype)
