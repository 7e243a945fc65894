"""NVIDIA's management library: clock, temperature, power, energy and throttling of a GPU.

`nvidia-ml-py` is optional. Without it, or without a GPU, `opened` returns None, and nothing of this
is known.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

# The bits of the reasons why clocks are held down, in the words of NVIDIA's documentation.
REASONS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
# A GPU at its power limit is as fast as it ever is under that load, for all contestants alike. The
# others come from heat or a weak supply, and may go again.
THROTTLING = {bit: word for bit, word in REASONS.items() if bit != 0x4}


@dataclass(frozen=True)
class Reading:
    """A GPU at one moment; None is what the driver does not tell.

    megahertz: of the multiprocessors. celsius, watts: now. joules: since the driver was loaded.
    reasons: the bits of why clocks are held down.
    """

    megahertz: int | None = None
    celsius: int | None = None
    watts: float | None = None
    joules: float | None = None
    reasons: int = 0


class Gpu:
    """A GPU that can be read; every answer may be missing."""

    def __init__(self, library: Any, index: int) -> None:
        self._library = library
        self._handle = library.nvmlDeviceGetHandleByIndex(index)

    def read(self) -> Reading:
        """The GPU now."""
        watts = self._asked("nvmlDeviceGetPowerUsage")
        joules = self.joules()
        reasons = self._asked("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:  # its name in older releases
            reasons = self._asked("nvmlDeviceGetCurrentClocksThrottleReasons")
        return Reading(
            self._asked("nvmlDeviceGetClockInfo", self._library.NVML_CLOCK_SM),
            self._asked("nvmlDeviceGetTemperature", self._library.NVML_TEMPERATURE_GPU),
            None if watts is None else watts / 1e3,
            joules,
            reasons or 0,
        )

    def joules(self) -> float | None:
        """The energy counter."""
        found = self._asked("nvmlDeviceGetTotalEnergyConsumption")
        return None if found is None else found / 1e3

    def _asked(self, name: str, *details: Any) -> int | None:
        function = getattr(self._library, name, None)
        if function is None:
            return None
        try:
            return int(function(self._handle, *details))
        except self._library.NVMLError:  # not supported by this GPU
            return None


def opened(index: int = 0, library: Any = None) -> Gpu | None:
    """The GPU of a number; None where there is none, or no nvidia-ml-py."""
    try:
        library = library or import_module("pynvml")
        library.nvmlInit()
        return Gpu(library, index)
    except Exception:  # not installed, no driver, no such GPU: there is nothing to read
        return None


def throttled(reasons: int) -> str:
    """Why a GPU is throttled, in words; empty where it is not.

    >>> throttled(0x4), throttled(0x20 | 0x40 | 0x1)
    ('', 'software thermal slowdown, hardware thermal slowdown')
    """
    return ", ".join(word for bit, word in THROTTLING.items() if reasons & bit)
