"""Probes of an NVIDIA GPU; times are the card's own, between events."""

import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from pareo import op
from pareo.device import PRECISIONS, Device
from pareo.lab.ceilings.model import Level, Probe
from pareo.spec import Spec

SIDES = (4096, 8192)
SMALLEST, LARGEST = 1 << 20, 1 << 30  # bytes of the streams
CALLS = 500
STREAMS = {"copy": 2, "triad": 3, "read": 1}  # and the arrays of each
TORCH_DTYPES = ("float32", "tf32", "bfloat16", "float16", "float64")


def probes(threads: int) -> list[Probe]:
    """What is measured of a GPU; how many threads the host has does not matter."""
    del threads
    found = [Probe("product", name, "pareo", 1, side) for name in PRECISIONS for side in SIDES]
    if find_spec("torch"):
        found += [Probe("product", name, "torch", 1, s) for name in TORCH_DTYPES for s in SIDES]
    nbytes = SMALLEST
    while nbytes <= LARGEST:
        found += [Probe("stream", name, "cupy", 1, nbytes) for name in STREAMS]
        nbytes *= 2
    found.append(Probe("overhead", "launching a kernel", "cupy", 1))
    found.append(Probe("overhead", "launching a kernel and waiting for it", "cupy", 1))
    found.append(Probe("overhead", "op.add of one number, cuda", "pareo", 1))
    return found


def levels() -> tuple[Level, ...]:
    """The card's L2, which all its processors share."""
    told = import_module("cupy").cuda.runtime.getDeviceProperties(0)
    return (Level("L2", int(told["l2CacheSize"]), int(told["multiProcessorCount"])),)


class Prober:
    """One sample of whatever is asked: a rate, or seconds of an overhead."""

    def __init__(self) -> None:
        self._call = cache(_call)

    def __call__(self, probe: Probe) -> float:
        if probe.kind == "overhead":
            return _overhead(probe.name)
        work, call = self._call(probe)
        with Device("cuda", precision=probe.name if probe.name in PRECISIONS else "float32"):
            return work / card_seconds(call, repeats=3)


def card_seconds(function: Callable[[], Any], repeats: int = 9) -> float:
    """The median time of a call on the card, between events, enough calls to fill a millisecond."""
    cupy = import_module("cupy")
    for _ in range(2):
        function()
    cupy.cuda.Device().synchronize()
    start = time.perf_counter()
    function()
    cupy.cuda.Device().synchronize()
    calls = max(1, round(1e-3 / max(time.perf_counter() - start, 1e-6)))
    samples = []
    for _ in range(repeats):
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        first.record()
        for _ in range(calls):
            function()
        last.record()
        last.synchronize()
        samples.append(cupy.cuda.get_elapsed_time(first, last) * 1e-3 / calls)
    return float(np.median(samples))


def _call(probe: Probe) -> tuple[int, Callable[[], Any]]:
    """The FLOPs or bytes of a probe, and a call that does them."""
    if probe.kind == "stream":
        return _stream(probe.name, probe.size)
    work = 2 * probe.size**3
    if probe.by == "torch":
        return work, _torch_product(probe.name, probe.size)
    cupy, side = import_module("cupy"), probe.size
    a, b = (cupy.random.random((side, side), dtype=np.float32) - 0.5 for _ in range(2))
    out = Device("cuda").backend.empty(Spec((side, side)))
    return work, lambda: op.dot(a, b, out=out)


def _torch_product(name: str, side: int) -> Callable[[], Any]:
    torch = import_module("torch")
    kind = torch.float32 if name == "tf32" else getattr(torch, name)
    a, b = (torch.rand(side, side, device="cuda").sub(0.5).to(kind) for _ in range(2))
    out = torch.empty_like(a)
    stream = torch.cuda.ExternalStream(import_module("cupy").cuda.get_current_stream().ptr)

    def call() -> None:
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        with torch.cuda.stream(stream):  # the one whose events tell the time
            torch.mm(a, b, out=out)

    return call


def _stream(name: str, nbytes: int) -> tuple[int, Callable[[], Any]]:
    cupy = import_module("cupy")
    length = nbytes // 4 // STREAMS[name]
    arrays = [cupy.ones(length, np.float32) for _ in range(STREAMS[name])]
    moved = length * 4 * len(arrays)
    if name == "copy":
        return moved, lambda: cupy.copyto(*arrays)
    if name == "read":
        out = cupy.empty((), np.float32)
        return moved, lambda: arrays[0].sum(out=out)
    triad = cupy.ElementwiseKernel("float32 a, float32 b", "float32 t", "t = a + 0.4f * b", "triad")
    return moved, lambda: triad(*arrays)


def _overhead(name: str) -> float:
    """Seconds of the host, for a call that computes next to nothing."""
    cupy = import_module("cupy")
    nothing = cupy.RawKernel('extern "C" __global__ void nothing() {}', "nothing")
    one = cupy.ones(1, np.float32)
    out = cupy.ones(1, np.float32)
    wait = cupy.cuda.get_current_stream().synchronize

    def launch() -> None:
        nothing((1,), (1,), ())

    def launch_and_wait() -> None:
        launch()
        wait()

    calls: dict[str, Callable[[], Any]] = {
        "launching a kernel": launch,
        "launching a kernel and waiting for it": launch_and_wait,
        "op.add of one number, cuda": lambda: op.add(one, one, out=out),
    }
    call = calls[name]
    with Device("cuda"):
        call()
        wait()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        took = time.perf_counter() - start
        wait()
        return took / CALLS
