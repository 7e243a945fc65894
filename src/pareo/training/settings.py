"""What `fit` is told about a run, checked before anything starts."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from pareo.errors import PareoError

PRECISIONS = ("float32", "float64")


class SettingError(PareoError, ValueError):
    """A number that a run is given makes no sense."""


@dataclass(frozen=True)
class Settings:
    """The numbers that decide, with network, data and device, every bit of a run.

    >>> Settings(rate=0.5).batch_size
    128
    >>> Settings(rate=-1)
    Traceback (most recent call last):
    pareo.training.settings.SettingError: fit expects a rate above 0; got -1
    """

    batch_size: int = 128
    rate: float = 0.1
    momentum: float = 0.0
    decay: float = 0.0
    seed: int = 0
    precision: str = "float32"

    def __post_init__(self) -> None:
        whole("batch_size", self.batch_size, 1)
        whole("seed", self.seed, 0)
        _real("a rate above 0", self.rate, lambda value: value > 0)
        _real("a momentum from 0 to below 1", self.momentum, lambda value: 0 <= value < 1)
        _real("a decay of 0 or more", self.decay, lambda value: value >= 0)
        if self.precision not in PRECISIONS:
            known = " or ".join(PRECISIONS)
            raise SettingError(f"fit expects a precision of {known}; got {self.precision!r}")

    def plain(self) -> dict[str, Any]:
        """The settings as JSON can hold them."""
        return asdict(self)


def whole(name: str, value: Any, least: int) -> int:
    """The value, if it is a whole number of at least `least`."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
        raise SettingError(f"fit expects {name} to be a whole number from {least}; got {value!r}")
    return int(value)


def _real(what: str, value: Any, fits: Any) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not fits(value):
        raise SettingError(f"fit expects {what}; got {value!r}")
