"""The `cuda` device: hand-written kernels, cuBLAS and cuDNN on CuPy's arrays.

- `table`: the backend, whose table of kernels the modules of `kernels/` fill.
- `kernels/`: one kernel for each operator, and some for several operators at once.
- `nhwc/`: programs with large convolutions, rewritten to channels-last layout and cuDNN.
- `epoch/`: whole epochs of a small network in one launch.
- `training`: many training steps on data that is on the GPU.
- `runtime/`: what all of them are built on: compiler, launches, memory, graphs, streams.

Everything can be imported without a GPU; only the attribute `backend` needs one.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec

from pareo.backends.cuda.runtime import nvrtc
from pareo.errors import DeviceError
from pareo.operators.core import PLAIN

FAMILIES = (
    "activation",
    "attention",
    "augmentation",
    "batch_norm",
    "convolution",
    "elementwise",
    "layer_norm",
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
    """Why the device is not available, in one sentence; None where it is."""
    if not find_spec("cupy"):
        return "CuPy is not installed: pip install 'pareo[cuda]'"
    try:
        import cupy

        if not cupy.cuda.runtime.getDeviceCount():
            return "CUDA finds no GPU on this machine"
    except Exception as error:  # a missing or outdated driver may raise anything
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
