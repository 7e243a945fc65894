"""The `cuda` device: listed, and honest about not being here yet."""

from importlib.util import find_spec

from pareo.errors import DeviceError


def reason() -> str:
    """Why the device cannot be used, in one sentence."""
    missing = "" if find_spec("cupy") else "CuPy is not installed, and "
    return f"{missing}this version of pareo has no CUDA kernels yet"


def __getattr__(name: str) -> object:
    if name == "backend":
        raise DeviceError(f"the device 'cuda' is not available: {reason()}")
    raise AttributeError(name)
