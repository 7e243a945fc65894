"""The `Device` scope, which selects where operators run, and the registry of backends.

A scope applies to the thread and the asyncio task that entered it only.
"""

import os
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pareo.errors import DeviceError

if TYPE_CHECKING:  # backends import this module; here they are imported by name when first used
    from pareo.backends.base import Backend

ALIASES = {"gpu": "cuda"}
PRECISIONS = ("float32", "tf32", "bfloat16")
MOST_THREADS = 1024  # of a device: more than a machine has, and few enough to start
_modules = {
    "sequential": "pareo.backends.sequential",
    "vectorized": "pareo.backends.vectorized",
    "compiled": "pareo.backends.compiled",
    "cuda": "pareo.backends.cuda",
}
_scopes: ContextVar[tuple["Device", ...]] = ContextVar("pareo_device_scopes", default=())
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def cores() -> int:
    """How many CPU cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class Device:
    """A device by name; as a scope, the device that operators run on.

    `sequential` is plain loops, `vectorized` NumPy, `compiled` Numba, `cuda` the GPU (also `gpu`,
    `cuda:1`). `threads` is the largest number of CPU threads that an operator may use. `precision`
    is how `cuda` multiplies matrices of float32: in IEEE arithmetic ('float32'), or with factors
    first rounded to 'tf32' or 'bfloat16'.

    >>> import numpy as np
    >>> from pareo import op
    >>> with Device("sequential"):
    ...     print(op.add(np.ones(2), np.ones(2)), op.get_mode())
    [2. 2.] sequential
    """

    name: str
    index: int
    threads: int
    precision: str

    def __init__(self, name: str, threads: int | None = None, precision: str = "float32") -> None:
        if not isinstance(name, str):
            raise DeviceError(f"Device expects a name such as 'compiled'; got {name!r}")
        base, colon, index = name.partition(":")
        base = ALIASES.get(base, base)
        if base not in _modules:
            raise DeviceError(f"Device expects one of {', '.join(names())}; got '{name}'")
        if colon and (base != "cuda" or not index.isdecimal()):
            raise DeviceError(f"Device expects an index only as in 'cuda:1'; got '{name}'")
        if threads is not None and (type(threads) is not int or not 1 <= threads <= MOST_THREADS):
            raise DeviceError(f"Device expects 1 to {MOST_THREADS:,} threads; got {threads!r}")
        if precision not in PRECISIONS:
            raise DeviceError(
                f"Device expects a precision of {', '.join(PRECISIONS)}; got {precision!r}"
            )
        if precision != "float32" and base != "cuda":
            raise DeviceError(f"the device '{base}' computes in float32; {precision} is for 'cuda'")
        object.__setattr__(self, "name", base)
        object.__setattr__(self, "index", int(index or 0))
        object.__setattr__(self, "threads", threads or (1 if base == "sequential" else cores()))
        object.__setattr__(self, "precision", precision)

    @property
    def backend(self) -> "Backend":
        """The backend that runs this device's operators, imported when first used."""
        return _backend(self.name)

    def __enter__(self) -> "Device":
        _backend(self.name).check_available(self)
        _scopes.set((*_scopes.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _scopes.set(_scopes.get()[:-1])

    def __str__(self) -> str:
        return f"cuda:{self.index}" if self.index else self.name


_default = Device("compiled")
_loaded: dict[str, "Backend"] = {}


def current() -> Device:
    """The device in scope; outside any scope, the one that `set_mode` chose, first `compiled`.

    >>> with Device("sequential"):
    ...     current().name
    'sequential'
    """
    scopes = _scopes.get()
    return scopes[-1] if scopes else _default


def set_mode(name: str) -> None:
    """Choose the device for everything outside a `with Device(...)`, in all threads.

    >>> set_mode("vectorized")
    """
    global _default
    device = Device(name)
    _backend(device.name)
    _default = device


def get_mode() -> str:
    """The name of the device that operators run on.

    >>> with Device("sequential"):
    ...     get_mode()
    'sequential'
    """
    return str(current())


def names() -> list[str]:
    """The names of all devices, whether this machine has them or not."""
    return list(_modules)


def register(name: str, module: str) -> None:
    """Add a device: `module` has a `Backend` named `backend`, and is imported when first used."""
    _modules[name] = module


def why_unavailable(name: str) -> str | None:
    """Why this machine cannot use a device, in one sentence; None where it can.

    >>> why_unavailable("compiled") is None
    True
    """
    try:
        _backend(ALIASES.get(name, name))
    except DeviceError as error:
        return str(error)
    return None


def carried(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """`function`, bound to the present scopes, so that another thread can run it in them.

    >>> import threading
    >>> with Device("sequential"):
    ...     worker = threading.Thread(target=carried(lambda: print(get_mode())))
    >>> worker.start(); worker.join()
    sequential
    """
    context = copy_context()

    def run(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        return context.copy().run(function, *args, **kwargs)

    return run


def _backend(name: str) -> "Backend":
    backend = _loaded.get(name)
    if backend is None:
        try:
            backend = _loaded[name] = import_module(_modules[name]).backend
        except ImportError as error:
            raise DeviceError(f"the device '{name}' is not available: {error}") from error
    return backend
