"""Streams by operators of libraries: `scale` is a copy, `add` is a triad.

They are among the probes so that no operator exceeds its own limit: if a library moves bytes
faster than the plain loops do, the machine can move them that fast.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from pareo import op
from pareo.device import Device
from pareo.program import trace
from pareo.spec import Spec

ARRAYS = {"copy": 1, "triad": 2}  # arrays that are read; one is written
SMALLEST = 1 << 25  # bytes from which the cost of a call does not show


def library_stream(library: str, name: str, nbytes: int, device: Device) -> tuple[int, Any]:
    """The bytes that a library's operator moves, and a call that moves them, maybe asynchronously.

    >>> moved, call = library_stream("pareo", "triad", 12 << 10, Device("vectorized"))
    >>> moved, call()[0].shape
    (12288, (1024,))
    """
    length = max(1, nbytes // 4 // (ARRAYS[name] + 1))
    moved = 4 * length * (ARRAYS[name] + 1)
    make = _torch_call if library == "torch" else _own_call
    return moved, make(name, length, device)


def _own_call(name: str, length: int, device: Device) -> Callable[[], Any]:
    backend = device.backend
    arrays = [backend.to_device(np.ones(length, np.float32)) for _ in range(ARRAYS[name])]

    def work(*given: Any) -> Any:
        return op.add(*given) if name == "triad" else op.scale(0.5, *given)

    run = trace(work, *(Spec((length,)) for _ in arrays)).compile(device).bind(*arrays)

    def call() -> Any:
        with device:
            return run()

    return call


def _torch_call(name: str, length: int, device: Device) -> Callable[[], Any]:
    torch = import_module("torch")
    place = "cuda" if device.name == "cuda" else "cpu"
    arrays = [torch.ones(length, device=place) for _ in range(ARRAYS[name])]
    out = torch.empty(length, device=place)
    if name == "triad":
        return lambda: torch.add(*arrays, out=out)
    return lambda: torch.mul(arrays[0], 0.5, out=out)
