"""The devices that tests run on, and arrays on them; `cuda` takes part where there is a GPU."""

import os
from typing import Any

import numpy as np
import pytest

from pareo import Device
from pareo.device import why_unavailable
from pareo.moving import to_device, to_host

_reason = why_unavailable("cuda")
needs_gpu = pytest.mark.skipif(_reason is not None, reason=str(_reason))
CPU = ("sequential", "vectorized", "compiled")
CUDA = pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])
DEVICES = (*CPU, CUDA)
# Kernels are compiled for Hopper; for others, set this to "sm_80,sm_90,sm_100" and have patience.
ARCHITECTURES = os.environ.get("PAREO_TEST_ARCHITECTURES", "sm_90").split(",")


def slow_on(device: str) -> list[Any]:
    """All devices, the test on one of them marked as slow."""
    return [pytest.param(d, marks=pytest.mark.slow) if d == device else d for d in DEVICES]


def placed(device: str, value: Any) -> Any:
    """An array of the host where a device reads it, in the same layout; all else as it is."""
    if device != "cuda" or not isinstance(value, np.ndarray):
        return value
    with Device(device):
        if value.flags.c_contiguous:
            return to_device(value)
        if value.flags.f_contiguous:
            return to_device(value.T).T
        if value.strides[0] < 0:
            return to_device(value[::-1])[::-1]
        if value.strides[-1] == 2 * value.itemsize:  # the gaps come along
            return to_device(value.base)[..., ::2]
        return to_device(value)


def home(device: str, value: Any) -> Any:
    """An array of a device on the host."""
    with Device(device):
        return to_host(value)
