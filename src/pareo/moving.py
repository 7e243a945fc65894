"""Moving arrays between the host and a device explicitly, with every byte counted."""

import os
import threading
from dataclasses import dataclass
from typing import Any

from pareo.device import current
from pareo.program import tree


@dataclass(frozen=True)
class Moved:
    """What was moved in one direction: how many bytes, in how many calls."""

    bytes: int = 0
    calls: int = 0

    def __sub__(self, earlier: "Moved") -> "Moved":
        return Moved(self.bytes - earlier.bytes, self.calls - earlier.calls)


_lock = threading.Lock()
if hasattr(os, "register_at_fork"):  # a thread that had it does not exist in the child
    os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
_total = {"to_device": Moved(), "to_host": Moved()}


def count(way: str, nbytes: int) -> None:
    """Count one transfer, 'to_device' or 'to_host'; all code that moves bytes calls this."""
    with _lock:
        before = _total[way]
        _total[way] = Moved(before.bytes + nbytes, before.calls + 1)


class Transfers:
    """Counts what is moved from now on; as a scope, what is moved inside it."""

    def __init__(self) -> None:
        self._start = dict(_total)
        self._end: dict[str, Moved] | None = None

    def __enter__(self) -> "Transfers":
        self._start = dict(_total)
        return self

    def __exit__(self, *_: object) -> None:
        self._end = dict(_total)

    @property
    def to_device(self) -> Moved:
        """From the host to a device."""
        return (self._end or _total)["to_device"] - self._start["to_device"]

    @property
    def to_host(self) -> Moved:
        """From a device to the host."""
        return (self._end or _total)["to_host"] - self._start["to_host"]

    def __repr__(self) -> str:
        return f"Transfers(to_device={self.to_device}, to_host={self.to_host})"


def transfers() -> Transfers:
    """Count what pareo moves between the host and its devices, in all threads.

    >>> import pareo
    >>> with pareo.transfers() as moved:
    ...     pass
    >>> moved.to_device
    Moved(bytes=0, calls=0)
    """
    return Transfers()


def to_device(value: Any) -> Any:
    """Move arrays, or a dict, list or tuple of them, to the device in scope.

    Arrays that are there already are not copied.

    >>> import numpy as np, pareo
    >>> with pareo.Device("vectorized"):
    ...     pareo.to_device(np.ones(2))
    array([1., 1.])
    """
    device = current()
    with device, device.backend.scope(device):
        return tree.transform(device.backend.to_device, value)


def to_host(value: Any) -> Any:
    """Copy arrays of the device in scope, or a dict, list or tuple of them, to NumPy arrays.

    >>> import numpy as np, pareo
    >>> pareo.to_host({"a": np.ones(2)})
    {'a': array([1., 1.])}
    """
    device = current()
    with device, device.backend.scope(device):
        return tree.transform(device.backend.to_host, value)
