"""The settings of a run, checked before anything starts."""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from pareo.errors import DataError
from pareo.training.checks import SettingError, real, whole, word
from pareo.training.optimizers import SGD
from pareo.training.recipe import Recipe

__all__ = ["PRECISIONS", "SCHEDULES", "SettingError", "Settings", "from_plain", "whole"]

PRECISIONS = ("float32", "float64", "tf32", "bfloat16")
SCHEDULES = ("constant", "cosine")


@dataclass(frozen=True)
class Settings:
    """The settings that, with network, data and device, determine every bit of a run.

    `epochs` is one of them only where the schedule of the rate depends on it.

    >>> Settings(rate=0.5).batch_size
    128
    >>> Settings(rate=-1)
    Traceback (most recent call last):
    pareo.training.checks.SettingError: fit expects a rate above 0; got -1
    """

    batch_size: int = 128
    rate: float = 0.1
    momentum: float = 0.0
    decay: float = 0.0
    seed: int = 0
    precision: str = "float32"
    schedule: str = "constant"
    epochs: int | None = None
    order: int | None = None

    def __post_init__(self) -> None:
        self._keep_whole("batch_size", 1)
        self._keep_whole("seed", 0)
        if self.order is not None:
            self._keep_whole("order", 0)
        real("a rate above 0", self.rate, lambda value: value > 0)
        real("a momentum from 0 to below 1", self.momentum, lambda value: 0 <= value < 1)
        real("a decay of 0 or more", self.decay, lambda value: value >= 0)
        word("precision", self.precision, PRECISIONS)
        word("schedule", self.schedule, SCHEDULES)
        if self.schedule == "constant":
            object.__setattr__(self, "epochs", None)
        else:
            self._keep_whole("epochs", 1)

    def _keep_whole(self, name: str, least: int) -> None:
        """Convert a NumPy integer to a Python int, which JSON can represent."""
        object.__setattr__(self, name, whole(name, getattr(self, name), least))

    @property
    def dtype(self) -> str:
        """The dtype of parameters and images: float32, unless everything is float64.

        >>> Settings(precision="tf32").dtype
        'float32'
        """
        return "float64" if self.precision == "float64" else "float32"

    @property
    def recipe(self) -> Recipe:
        """How one step trains the network."""
        return Recipe(SGD(self.momentum), self.decay)

    @property
    def order_seed(self) -> int:
        """The seed of the order of the images: `order`, or else `seed`.

        >>> Settings(seed=3).order_seed, Settings(seed=3, order=7).order_seed
        (3, 7)
        """
        return self.seed if self.order is None else self.order

    def rate_in(self, epoch: int) -> float:
        """The rate of an epoch, counted from 0.

        >>> falling = Settings(rate=1.0, schedule="cosine", epochs=4)
        >>> [round(falling.rate_in(epoch), 2) for epoch in range(4)]
        [0.12, 0.85, 0.5, 0.15]
        """
        if self.epochs is None:
            return self.rate
        if epoch == 0:  # so that sigmoids do not saturate before they have learned anything
            return self.rate / 8
        return self.rate * (1 + math.cos(math.pi * epoch / self.epochs)) / 2

    def plain(self) -> dict[str, Any]:
        """The settings as values that JSON can represent."""
        return asdict(self)


def from_plain(found: Any, file: object) -> Settings:
    """The settings in a checkpoint; anything else raises `DataError`.

    >>> from_plain(Settings(rate=0.5).plain(), "x.safetensors").rate
    0.5
    """
    if not found:
        raise DataError(f"{file}: holds only weights, no run to resume")
    if set(found) != {field.name for field in fields(Settings)}:
        raise DataError(f"{file}: its settings are not those of a run: {', '.join(found)}")
    try:
        return Settings(**found)
    except (SettingError, TypeError) as error:
        raise DataError(f"{file}: its settings are not those of a run: {error}") from error
