"""The `cuda` device: hand-written kernels and cuBLAS on CuPy's arrays.

Nothing here needs a GPU to be imported; `backend` does.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec

from pareo.backends.cuda.runtime import nvrtc
from pareo.errors import DeviceError
from pareo.operators.core import PLAIN

FAMILIES = (
    "convolution",
    "elementwise",
    "linear",
    "loss",
    "normalisation",
    "pooling",
    "reduction",
    "stacks",
    "update",
)


@cache
def reason() -> str | None:
    """Why the device cannot be used here, in one sentence; None where it can."""
    if not find_spec("cupy"):
        return "CuPy is not installed: pip install 'pareo[cuda]'"
    try:
        import cupy

        if not cupy.cuda.runtime.getDeviceCount():
            return "CUDA finds no GPU on this machine"
    except Exception as error:  # whatever a driver that is missing, or too old, may cause
        return f"CUDA finds no GPU on this machine: {str(error).strip().splitlines()[0]}"
    return nvrtc.missing() or import_module(f"{__name__}.runtime.cublas").missing()


def __getattr__(name: str) -> object:
    if name != "backend":
        raise AttributeError(name)
    why = reason()
    if why:
        raise DeviceError(f"the device 'cuda' is not available: {why}")
    for family in FAMILIES:
        import_module(f"{__name__}.kernels.{family}")
    PLAIN.add(import_module("cupy").ndarray)
    return import_module(f"{__name__}.table").backend
