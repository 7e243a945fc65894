"""Moving arrays between the host and a device: on purpose, and with every byte counted."""

import threading
from dataclasses import dataclass
from typing import Any

from pareo.device import current
from pareo.program import tree


@dataclass(frozen=True)
class Moved:
    """What went one way: how many bytes, in how many calls."""

    bytes: int = 0
    calls: int = 0

    def __sub__(self, earlier: "Moved") -> "Moved":
        return Moved(self.bytes - earlier.bytes, self.calls - earlier.calls)


_lock = threading.Lock()
_total = {"to_device": Moved(), "to_host": Moved()}


def count(way: str, nbytes: int) -> None:
    """Count one transfer, 'to_device' or 'to_host': whoever moves bytes calls this."""
    with _lock:
        before = _total[way]
        _total[way] = Moved(before.bytes + nbytes, before.calls + 1)


class Transfers:
    """What moves from here on; as a scope, what moved inside it."""

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
    """Counts what pareo moves between the host and its devices, in all threads.

    >>> import pareo
    >>> with pareo.transfers() as moved:
    ...     pass
    >>> moved.to_device
    Moved(bytes=0, calls=0)
    """
    return Transfers()


def to_device(value: Any) -> Any:
    """Arrays, or a dict, list or tuple of them, where the device in scope computes.

    What lies there already is not copied.

    >>> import numpy as np, pareo
    >>> with pareo.Device("vectorized"):
    ...     pareo.to_device(np.ones(2))
    array([1., 1.])
    """
    device = current()
    with device, device.backend.scope(device):
        return tree.transform(device.backend.to_device, value)


def to_host(value: Any) -> Any:
    """Arrays of the device in scope, or a dict, list or tuple of them, as NumPy's.

    >>> import numpy as np, pareo
    >>> pareo.to_host({"a": np.ones(2)})
    {'a': array([1., 1.])}
    """
    device = current()
    with device, device.backend.scope(device):
        return tree.transform(device.backend.to_host, value)
