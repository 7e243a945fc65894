"""Pareo's own operators, on one of its devices."""

from collections.abc import Callable
from typing import Any

from pareo.device import Device
from pareo.lab.ops.work import Work


class Pareo:
    """A device: the work is a compiled program, bound to its arrays."""

    def __init__(self, device: str, threads: int, dtype: str = "float32") -> None:
        self._device = Device(device, threads=None if device == "sequential" else threads)
        self._dtype = dtype

    def call(self, work: Work, arrays: list[Any]) -> Callable[[], Any]:
        """A function that does the work on these arrays."""
        with self._device:
            here = [self._device.backend.to_device(array) for array in arrays]
            bound = work.program(self._dtype).compile(self._device).bind(*here)

        def run() -> Any:
            with self._device:
                return bound()

        return run

    def wait(self) -> None:
        """Wait until the device has finished."""
        self._device.backend.wait()

    def host(self, result: Any) -> Any:
        """A result as a NumPy array."""
        return self._device.backend.to_host(result)
