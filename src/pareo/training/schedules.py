"""Schedules: the learning rate of each step, as a share of the rate that was set."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pareo.training.checks import SettingError, number, real, whole

Shares = NDArray[np.float64]
EXAMPLES = "constant, step:30:0.1, cosine, cosine-epochs, onecycle or warmup:5+cosine"


class Schedule(ABC):
    """A rule for the learning rate.

    >>> Step(every=2, factor=0.5).rates(0.8, first=0, count=6, per_epoch=1, epochs=6)
    array([0.8, 0.8, 0.4, 0.4, 0.2, 0.2])
    """

    name: ClassVar[str]

    @property
    def needs_epochs(self) -> bool:
        """Whether the rates depend on how many epochs there are in all."""
        return False

    @property
    def steady(self) -> bool:
        """Whether the rate changes only between epochs."""
        return False

    @abstractmethod
    def shares(self, steps: NDArray[np.int64], per_epoch: int, total: int) -> Shares:
        """The share of the rate at steps counted from 0, of `total` steps in all."""

    def rates(self, rate: float, first: int, count: int, per_epoch: int, epochs: int) -> Shares:
        """The rates of `count` steps from step `first` of the run, which is counted from 0.

        `per_epoch` is the number of steps of one epoch.
        """
        steps = np.arange(first, first + count)
        return rate * self.shares(steps, per_epoch, per_epoch * epochs)

    @abstractmethod
    def __str__(self) -> str:
        """The text from which `parse` makes this schedule.

        >>> str(Warmup(5, Cosine()))
        'warmup:5+cosine'
        """


@dataclass(frozen=True)
class Constant(Schedule):
    """The same rate in every step."""

    name: ClassVar[str] = "constant"

    @property
    def steady(self) -> bool:
        return True

    def shares(self, steps: NDArray[np.int64], per_epoch: int, total: int) -> Shares:
        return np.ones(len(steps))

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Step(Schedule):
    """The rate is multiplied by `factor` after every `every` epochs."""

    every: int
    factor: float = 0.1
    name: ClassVar[str] = "step"

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", whole("the epochs between steps", self.every, 1))
        real("a factor above 0 of the rate", self.factor, lambda value: value > 0)

    @property
    def steady(self) -> bool:
        return True

    def shares(self, steps: NDArray[np.int64], per_epoch: int, total: int) -> Shares:
        return np.power(np.float64(self.factor), steps // per_epoch // self.every)

    def __str__(self) -> str:
        return _text(self.name, self.every, self.factor)


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine, step by step, from the whole rate to `final` of it after the last step.

    >>> Cosine().rates(1.0, first=0, count=3, per_epoch=2, epochs=2).round(3)
    array([1.   , 0.854, 0.5  ])
    """

    final: float = 0.0
    name: ClassVar[str] = "cosine"

    def __post_init__(self) -> None:
        real("a final share of the rate from 0 to 1", self.final, lambda value: 0 <= value <= 1)

    @property
    def needs_epochs(self) -> bool:
        return True

    def shares(self, steps: NDArray[np.int64], per_epoch: int, total: int) -> Shares:
        done = np.minimum(steps, total) / max(1, total)
        return self.final + (1 - self.final) * (1 + np.cos(np.pi * done)) / 2

    def __str__(self) -> str:
        return _text(self.name, self.final) if self.final else self.name


@dataclass(frozen=True)
class CosineEpochs(Schedule):
    """An eighth of the rate in the first epoch, then half a cosine, epoch by epoch, towards 0.

    The gentle start keeps sigmoids from saturating before they have learned anything. Version 0.2
    called this schedule 'cosine'.

    >>> CosineEpochs().rates(1.0, first=0, count=4, per_epoch=1, epochs=4).round(2)
    array([0.12, 0.85, 0.5 , 0.15])
    """

    name: ClassVar[str] = "cosine-epochs"

    @property
    def needs_epochs(self) -> bool:
        return True

    @property
    def steady(self) -> bool:
        return True

    def shares(self, steps: NDArray[np.int64], per_epoch: int, total: int) -> Shares:
        epochs = max(1, total // per_epoch)
        # math.cos, not NumPy's: checkpoints of earlier versions were trained with its bits.
        return np.array([_gentle(int(epoch), epochs) for epoch in steps // per_epoch], np.float64)

    def __str__(self) -> str:
        return self.name


def _gentle(epoch: int, epochs: int) -> float:
    if epoch == 0:
        return 1 / 8
    return (1 + math.cos(math.pi * min(epoch, epochs) / epochs)) / 2


@dataclass(frozen=True)
class OneCycle(Schedule):
    """One rise and one fall, both half a cosine (Smith and Topin, 2018).

    rise:   the share of the steps in which the rate rises to the whole
    start:  the share of the rate in the first step
    final:  the share of the rate in the last step

    >>> OneCycle().rates(1.0, first=0, count=10, per_epoch=10, epochs=1).round(2)[:4]
    array([0.04, 0.52, 1.  , 0.95])
    """

    rise: float = 0.3
    start: float = 0.04
    final: float = 4e-6
    name: ClassVar[str] = "onecycle"

    def __post_init__(self) -> None:
        real("a share of steps that rise, from 0 to 1", self.rise, lambda value: 0 <= value <= 1)
        real("a share of the rate at the start above 0", self.start, lambda value: value > 0)
        real("a share of the rate at the end of 0 or more", self.final, lambda value: value >= 0)

    @property
    def needs_epochs(self) -> bool:
        return True

    def shares(self, steps: NDArray[np.int64], per_epoch: int, total: int) -> Shares:
        top, end = self.rise * total - 1, total - 1.0
        steps = np.minimum(steps, end)
        up = np.clip(steps / top, 0, 1) if top > 0 else np.ones(len(steps))
        down = np.clip((steps - top) / max(end - top, 1e-9), 0, 1)
        rising = _between(self.start, 1.0, up)
        return np.where(steps <= top, rising, _between(1.0, self.final, down))

    def __str__(self) -> str:
        usual = OneCycle()
        if (self.start, self.final) != (usual.start, usual.final):
            return _text(self.name, self.rise, self.start, self.final)
        return self.name if self == usual else _text(self.name, self.rise)


def _between(first: float, last: float, done: Any) -> Any:
    """From one number to another along half a cosine."""
    return last + (first - last) / 2 * (1 + np.cos(np.pi * done))


@dataclass(frozen=True)
class Warmup(Schedule):
    """A linear rise from `start` of the rate, over some epochs or steps, and then a schedule.

    `then` counts its steps from the end of the rise, and has so many fewer of them.

    >>> Warmup(steps=4, start=0.2).rates(1.0, first=0, count=6, per_epoch=10, epochs=1).round(2)
    array([0.2, 0.4, 0.6, 0.8, 1. , 1. ])
    """

    epochs: float = 0.0
    then: Schedule = field(default_factory=Constant)
    start: float = 0.01
    steps: int = 0
    name: ClassVar[str] = "warmup"

    def __post_init__(self) -> None:
        real("0 or more epochs of warm-up", self.epochs, lambda value: value >= 0)
        object.__setattr__(self, "steps", whole("the steps of warm-up", self.steps, 0))
        if bool(self.epochs) == bool(self.steps):
            raise SettingError("fit expects warm-up over some epochs or over some steps, not both")
        real("a share of the rate from 0 to 1", self.start, lambda value: 0 <= value <= 1)
        if not isinstance(self.then, Schedule) or isinstance(self.then, Warmup):
            raise SettingError(
                f"fit expects a schedule after the warm-up, such as Cosine(); got {self.then!r}"
            )

    @property
    def needs_epochs(self) -> bool:
        return self.then.needs_epochs

    def shares(self, steps: NDArray[np.int64], per_epoch: int, total: int) -> Shares:
        rise = self.steps or max(1, round(self.epochs * per_epoch))
        rising = self.start + (1 - self.start) * steps / rise
        after = self.then.shares(np.maximum(steps - rise, 0), per_epoch, max(1, total - rise))
        return np.where(steps < rise, rising, after)

    def __str__(self) -> str:
        length = f"{self.steps}steps" if self.steps else number(self.epochs)
        words = [self.name, length, *([] if self.start == 0.01 else [number(self.start)])]
        rest = "" if self.then == Constant() else f"+{self.then}"
        return ":".join(words) + rest


def _text(name: str, *numbers: float) -> str:
    return ":".join((name, *map(number, numbers)))


def parse(text: str) -> Schedule:
    """The schedule that a text names.

    >>> parse("warmup:5+cosine")
    Warmup(epochs=5.0, then=Cosine(final=0.0), start=0.01, steps=0)
    >>> parse("step:30:0.1")
    Step(every=30, factor=0.1)
    """
    if not isinstance(text, str):
        raise _unknown(text)
    first, plus, rest = text.strip().partition("+")
    name, *numbers = first.strip().split(":")
    if plus and name != "warmup":
        raise _unknown(text)
    try:
        match name, numbers:
            case "constant", []:
                return Constant()
            case "step", [every]:
                return Step(int(every))
            case "step", [every, factor]:
                return Step(int(every), float(factor))
            case "cosine", []:
                return Cosine()
            case "cosine", [final]:
                return Cosine(float(final))
            case "cosine-epochs", []:
                return CosineEpochs()
            case "onecycle", []:
                return OneCycle()
            case "onecycle", [rise]:
                return OneCycle(float(rise))
            case "onecycle", [rise, start, final]:
                return OneCycle(float(rise), float(start), float(final))
            case "warmup", [length, *start] if len(start) < 2:
                then = parse(rest) if plus else Constant()
                low = float(start[0]) if start else 0.01
                if length.endswith("steps"):
                    return Warmup(0.0, then, low, int(length.removesuffix("steps")))
                return Warmup(float(length), then, low)
    except SettingError:
        raise
    except ValueError:
        pass
    raise _unknown(text)


def _unknown(text: Any) -> SettingError:
    return SettingError(f"fit expects a schedule such as {EXAMPLES}; got {text!r}")
