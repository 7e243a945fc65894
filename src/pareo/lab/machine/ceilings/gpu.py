"""Probes of an NVIDIA GPU."""

import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from pareo import op
from pareo.device import PRECISIONS, Device
from pareo.lab.machine.ceilings.library_streams import ARRAYS, library_stream
from pareo.lab.machine.ceilings.model import Level, Probe

SIDES = (4096, 8192)
SMALLEST, LARGEST = 1 << 20, 1 << 30  # bytes of the streams
CALLS = 500
ROUNDS = 4  # nothing else runs on the GPU
FRESH = False  # see cpu.py; a process on a GPU takes seconds to start
LEAST = 0.003  # seconds of a series of calls
AT_LEAST = 1 << 30  # bytes of one launch
SMALLEST_CALL = 1 << 26  # bytes from which a launch for each call does not show
STREAMS = {"copy": 2, "triad": 3, "read": 1}  # and the arrays of each
# Loads bypass the first cache, whose contents do not outlive a launch.
SOURCE = r"""
extern "C" __global__ void copy(float4* t, const float4* a, long long quads, int times) {
    for (int n = 0; n < times; ++n)
        for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < quads;
             i += (long long)gridDim.x * blockDim.x)
            t[i] = __ldcg(a + i);
}
extern "C" __global__ void triad(
    float4* t, const float4* a, const float4* b, long long quads, int times) {
    for (int n = 0; n < times; ++n)
        for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < quads;
             i += (long long)gridDim.x * blockDim.x) {
            float4 x = __ldcg(a + i), y = __ldcg(b + i);
            t[i] = make_float4(x.x + 0.4f * y.x, x.y + 0.4f * y.y, x.z + 0.4f * y.z,
                               x.w + 0.4f * y.w);
        }
}
extern "C" __global__ void read(float4* a, long long quads, int times) {
    float sum = 0;
    for (int n = 0; n < times; ++n)
        for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < quads;
             i += (long long)gridDim.x * blockDim.x) {
            float4 x = __ldcg(a + i);
            sum += x.x + x.y + x.z + x.w;
        }
    if (sum < 0) a[0].x = sum;  // never true, but the compiler cannot know
}
"""
TORCH_DTYPES = ("float32", "tf32", "bfloat16", "float16", "float64")


def probes(threads: int) -> list[Probe]:
    """What is measured of a GPU; the number of threads does not matter."""
    del threads
    found = [Probe("product", name, "pareo", 1, side) for name in PRECISIONS for side in SIDES]
    if find_spec("torch"):
        found += [Probe("product", name, "torch", 1, s) for name in TORCH_DTYPES for s in SIDES]
    nbytes = SMALLEST
    while nbytes <= LARGEST:
        found += [Probe("stream", name, "loops", 1, nbytes) for name in STREAMS]
        if nbytes >= SMALLEST_CALL:
            found.append(Probe("stream", "copy", "the driver", 1, nbytes))
            libraries = ("pareo", "torch") if find_spec("torch") else ("pareo",)
            found += [Probe("stream", n, by, 1, nbytes) for n in ARRAYS for by in libraries]
        nbytes *= 2
    found.append(Probe("overhead", "launching a kernel", "cupy", 1))
    found.append(Probe("overhead", "launching a kernel and waiting for it", "cupy", 1))
    found.append(Probe("overhead", "op.add of one number, cuda", "pareo", 1))
    return found


def levels() -> list[Level]:
    """The L2 cache, which all multiprocessors share."""
    found = import_module("cupy").cuda.runtime.getDeviceProperties(0)
    return [Level("L2", int(found["l2CacheSize"]), int(found["multiProcessorCount"]))]


class Prober:
    """Takes one sample of a probe: a rate, or the seconds of an overhead."""

    def __init__(self) -> None:
        self._call = cache(_call)

    def __call__(self, probe: Probe) -> float:
        if probe.kind == "overhead":
            return _overhead(probe.name)
        work, call = self._call(probe)
        return work / card_seconds(call)


def card_seconds(call: Callable[[], Any]) -> float:
    """Seconds of a call: the best of three series of calls, which hide the cost on the host.

    It waits for all streams of the GPU, so a call may use any of them.
    """
    wait = import_module("cupy").cuda.Device().synchronize
    count = 1
    took = _series(call, wait, count)
    while took < LEAST:
        count = max(count + 1, int(count * min(100, 1.3 * LEAST / took)))
        took = _series(call, wait, count)
    return min(took, _series(call, wait, count), _series(call, wait, count)) / count


def _series(call: Callable[[], Any], wait: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    wait()
    return time.perf_counter() - start


def _call(probe: Probe) -> tuple[int, Callable[[], Any]]:
    """The FLOPs or bytes of a probe, and a call, which has run once, that does them."""
    if probe.kind == "stream":
        work, call = _stream_by(probe)
    else:
        product = _torch_product if probe.by == "torch" else _own_product
        work, call = 2 * probe.size**3, product(probe.name, probe.size)
    call()
    import_module("cupy").cuda.Device().synchronize()
    return work, call


def _own_product(precision: str, side: int) -> Callable[[], Any]:
    cupy, device = import_module("cupy"), Device("cuda", precision=precision)
    with device, device.backend.scope(device):
        run = device.backend.squaring(cupy.random.random((side, side), dtype=np.float32) - 0.5)

    def call() -> None:
        with device, device.backend.scope(device):
            run()

    return call


def _torch_product(name: str, side: int) -> Callable[[], Any]:
    torch = import_module("torch")
    kind = torch.float32 if name == "tf32" else getattr(torch, name)
    a, b = (torch.rand(side, side, device="cuda").sub(0.5).to(kind) for _ in range(2))
    out = torch.empty_like(a)

    def call() -> None:
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        torch.mm(a, b, out=out)

    return call


def _stream(name: str, nbytes: int) -> tuple[int, Callable[[], Any]]:
    """A kernel that goes over its arrays many times, so the launch does not show in its rate."""
    cupy = import_module("cupy")
    quads = max(1, nbytes // 16 // STREAMS[name])
    arrays = [cupy.ones(4 * quads, np.float32) for _ in range(STREAMS[name])]
    moved = 16 * quads * len(arrays)
    times = max(1, AT_LEAST // moved)
    kernel = cupy.RawKernel(SOURCE, name)
    blocks = 8 * cupy.cuda.Device().attributes["MultiProcessorCount"]
    given = (*arrays, np.int64(quads), np.int32(times))
    return moved * times, lambda: kernel((blocks,), (256,), given)


def _stream_by(probe: Probe) -> tuple[int, Callable[[], Any]]:
    if probe.by == "loops":
        return _stream(probe.name, probe.size)
    if probe.by == "the driver":
        return _driver_copy(probe.name, probe.size)
    return library_stream(probe.by, probe.name, probe.size, Device("cuda"))


def _driver_copy(name: str, nbytes: int) -> tuple[int, Callable[[], Any]]:
    """The driver's own copy, which is faster for large arrays."""
    cupy = import_module("cupy")
    target, source = (cupy.ones(nbytes // 8, np.float32) for _ in range(STREAMS[name]))
    return 2 * source.nbytes, lambda: cupy.copyto(target, source)


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
