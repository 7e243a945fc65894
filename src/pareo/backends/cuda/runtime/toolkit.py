"""Finds the parts of the CUDA toolkit, in NVIDIA's wheels or in the system's installation."""

import ctypes
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from pareo.errors import DeviceError


def folders(name: str) -> list[Path]:
    """The existing directories of the toolkit with this name, such as 'include'."""
    found = find_spec("nvidia")
    wheels = list(found.submodule_search_locations or ()) if found else []
    roots = [Path(wheel) / "cu13" for wheel in wheels]
    roots += [Path(os.environ[key]) for key in ("CUDA_PATH", "CUDA_HOME") if key in os.environ]
    places = [root / name for root in (*roots, Path("/usr/local/cuda"))]
    return [place for place in places if place.is_dir()]


@cache
def library(name: str, wheel: str, before: str = "") -> ctypes.CDLL:
    """A shared library of the toolkit.

    Args:
        name: the library's file name.
        wheel: the package to name in the error when the library is missing.
        before: a pattern of libraries that must be loaded first.
    """
    for folder in (*folders("lib"), *folders("lib64")):
        if (folder / name).exists():
            for other in sorted(folder.glob(before)) if before else ():
                ctypes.CDLL(str(other))
            return ctypes.CDLL(str(folder / name))
    try:
        return ctypes.CDLL(name)
    except OSError:
        raise DeviceError(f"CUDA's library {name} was not found: pip install {wheel}") from None


@cache
def driver() -> ctypes.CDLL:
    """The library that the GPU driver installs."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceError(f"CUDA's driver was not found: {error}") from None
