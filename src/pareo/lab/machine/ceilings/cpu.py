"""Probes of a processor, each library in a process of its own."""

import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from pareo import op
from pareo.backends import blas
from pareo.device import Device
from pareo.lab.machine.ceilings import caches
from pareo.lab.machine.ceilings.library_streams import ARRAYS, library_stream
from pareo.lab.machine.ceilings.library_streams import SMALLEST as SMALLEST_CALL
from pareo.lab.machine.ceilings.model import Level, Probe

SIDE, LARGE_SIDE = 1536, 4096
SMALLEST = 16 << 10  # bytes for each thread: a quarter of the smallest first cache
MEMORY = 256 << 20  # bytes that no cache holds, or four times the last cache where that is more
CALLS = 2000
ROUNDS = 6
ANEW = True  # overheads in a new process each round: one's are a tenth above another's


def probes(threads: int) -> list[Probe]:
    """What is measured of a processor, with one thread and with so many."""
    from pareo.lab.machine.ceilings.streams import (
        LOOPS,  # which imports Numba, when it is asked for
    )

    counts = sorted({1, threads})
    libraries = ["numpy", *(["torch"] if find_spec("torch") else [])]
    found = [
        Probe("product", dtype, library, count, SIDE)
        for count in counts
        for dtype in ("float32", "float64")
        for library in libraries
    ]
    found += [Probe("product", "float32", library, threads, LARGE_SIDE) for library in libraries]
    for count in counts:
        for nbytes in sizes(count):
            found += [Probe("stream", name, "loops", count, nbytes) for name in LOOPS]
    large = [nbytes for nbytes in sizes(threads) if nbytes >= SMALLEST_CALL]
    for library in ("pareo", *libraries[1:]):
        found += [Probe("stream", n, library, threads, b) for b in large for n in ARRAYS]
    found.append(Probe("overhead", "np.add of one number", "numpy", 1))
    found.append(Probe("overhead", "op.add of one number, compiled", "pareo", 1))
    if threads > 1:
        found.append(Probe("overhead", f"handing work to {threads} threads", "pareo", threads))
    return found


def sizes(threads: int) -> list[int]:
    """Bytes of the streams: doubling from what fits the first cache to what fits none."""
    last = max((level.total(threads) for level in caches.levels()), default=0)
    found = [SMALLEST * threads]
    while found[-1] < max(MEMORY, 4 * last):
        found.append(found[-1] * 2)
    return found


def levels() -> tuple[Level, ...]:
    """The caches."""
    return caches.levels()


class Prober:
    """One sample of whatever is asked: a rate, or seconds of an overhead."""

    def __init__(self) -> None:
        from pareo.lab.machine.ceilings.streams import Room, Stream

        self._room = Room()
        self._stream = cache(Stream)
        self._product = cache(_product)

    def __call__(self, probe: Probe) -> float:
        if probe.kind == "stream" and probe.by == "loops":
            return self._stream(probe.name, probe.size, probe.threads).rate(self._room)
        if probe.kind == "stream":
            return _library_rate(probe)
        if probe.kind == "overhead":
            return _overhead(probe)
        call = self._product(probe.by, probe.name, probe.size)
        _set_threads(probe)
        repeats = 2 if probe.size <= SIDE else 1
        return 2 * probe.size**3 / min(_seconds(call) for _ in range(repeats))


def _product(library: str, dtype: str, side: int) -> Callable[[], Any]:
    """A matrix product, which has run once."""
    a = np.random.default_rng(0).standard_normal((side, side)).astype(dtype)
    out = np.empty_like(a)

    def by_numpy() -> Any:
        return np.matmul(a, a, out=out)

    call = by_numpy
    if library == "torch":
        import torch

        of, into = torch.from_numpy(a), torch.from_numpy(out)

        def by_torch() -> Any:
            return torch.mm(of, of, out=into)

        call = by_torch
    call()
    return call


def _library_rate(probe: Probe) -> float:
    """Bytes a second of a library's operator, made anew: its arrays are not kept for long."""
    _set_threads(probe)
    device = Device("compiled", threads=probe.threads)
    moved, call = library_stream(probe.by, probe.name, probe.size, device)
    call()
    return moved / min(_seconds(call) for _ in range(3))


def _set_threads(probe: Probe) -> None:
    if probe.by == "torch":
        import torch

        torch.set_num_threads(probe.threads)
    else:
        blas.threads(probe.threads)


def _overhead(probe: Probe) -> float:
    """Seconds of a call that has next to nothing to do."""
    one, out = np.ones(1, np.float32), np.ones(1, np.float32)
    split = Device("compiled").backend.split
    calls: dict[str, Callable[[], Any]] = {
        "np.add": lambda: np.add(one, one, out=out),
        "op.add": lambda: op.add(one, one, out=out),
        "handing": lambda: split(lambda part, low, high: None, probe.threads),
    }
    call = calls[probe.name.split()[0]]
    with Device("compiled", threads=probe.threads):
        call()
        return _seconds(lambda: [call() for _ in range(CALLS)]) / CALLS


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
