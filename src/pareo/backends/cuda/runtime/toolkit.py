"""Where the parts of the CUDA toolkit lie: in NVIDIA's wheels, or where the system has them."""

import ctypes
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from pareo.errors import DeviceError


def folders(name: str) -> list[Path]:
    """The folders of one name, 'include' say, that exist."""
    found = find_spec("nvidia")
    wheels = list(found.submodule_search_locations or ()) if found else []
    roots = [Path(wheel) / "cu13" for wheel in wheels]
    roots += [Path(os.environ[key]) for key in ("CUDA_PATH", "CUDA_HOME") if key in os.environ]
    places = [root / name for root in (*roots, Path("/usr/local/cuda"))]
    return [place for place in places if place.is_dir()]


@cache
def library(name: str, wheel: str, before: str = "") -> ctypes.CDLL:
    """A shared library of the toolkit; `before` is a pattern of those to load ahead of it."""
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
    """The driver's own library, which comes with it."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceError(f"CUDA's driver was not found: {error}") from None
