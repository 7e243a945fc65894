"""How fast a device multiplies matrices and copies memory: lower bounds for a training step."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from pareo import operators as op
from pareo.backends import blas
from pareo.device import Device
from pareo.moving import to_device
from pareo.spec import Spec

SIZE = 1536  # of a matrix, in rows
COPIED = 1 << 26  # bytes: far more than caches hold
REPEATS = 6
GPU_SIZE = 4096
GPU_COPIED = 1 << 28

_peaks: dict[tuple[int, str], float] = {}


def matrix_peak(threads: int, dtype: str = "float32", reached: float = 0.0) -> float:
    """FLOP/s of a large matrix product on this many threads: the best of a few, measured once.

    If the caller's own work has `reached` more, the machine was busy then: it is measured again.

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


def peak(device: Device, dtype: str = "float32", reached: float = 0.0) -> float:
    """The FLOP/s of a large matrix product, which a device's work is compared with."""
    if device.name == "cuda":
        return gpu_peak(device, dtype)
    return matrix_peak(device.threads, dtype, reached)


@cache
def gpu_peak(device: Device, dtype: str) -> float:
    """FLOP/s of a large matrix product on a GPU, in the device's precision."""
    line = np.random.default_rng(0).standard_normal((GPU_SIZE, 1)).astype(dtype)
    with device, device.backend.scope(device):
        a = op.dot(*to_device((line, line.T)))  # different numbers, made on the GPU
        return 2 * GPU_SIZE**3 / _best_on_gpu(device, device.backend.squaring(a))


@cache
def gpu_bandwidth(device: Device) -> float:
    """Bytes per second, read plus written, of a large copy within a GPU's memory."""
    backend, bulk = device.backend, Spec((GPU_COPIED // 4,))
    with device, backend.scope(device):
        source, target = backend.empty(bulk), backend.empty(bulk)
        return 2 * GPU_COPIED / _best_on_gpu(device, lambda: backend.copy(target, source))


def _best_on_gpu(device: Device, work: Callable[[], Any]) -> float:
    """Seconds of one call, of several queued at once so that the host's time is hidden."""

    def several() -> None:
        for _ in range(REPEATS):
            work()
        device.backend.wait()

    return _best(several) / REPEATS


def bandwidth(device: Device) -> float:
    """The bytes per second of a large copy, which a device's work is compared with."""
    return gpu_bandwidth(device) if device.name == "cuda" else copy_bandwidth(device.threads)


def floor_seconds(flops: float, moved: float, peak: float, bandwidth: float) -> float:
    """The least time in seconds for so many FLOPs and bytes: the longer of the two.

    >>> floor_seconds(flops=100, moved=60, peak=50, bandwidth=20)
    3.0
    """
    return max(flops / peak, moved / bandwidth)
