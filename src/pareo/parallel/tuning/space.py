"""The search space: a TOML file of hyper-parameters, checked before anything is trained.

rate = { low = 0.001, high = 1.0, log = true }  # a range
batch_size = [32, 64, 128]                      # a choice
momentum = 0.9                                  # fixed
optimizer = ["sgd", "adamw"]                    # momentum is for sgd and nesterov only
augment = ["", "flip,crop:4"]
"""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pareo.errors import DataError
from pareo.nn.networks import ACTIVATIONS
from pareo.regular_file import regular
from pareo.strict_json import shown
from pareo.training import optimizers, schedules
from pareo.training.augmentation import Augmentation
from pareo.training.checks import SettingError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

LARGEST_FILE = 1 << 20
LARGEST_SIZE = 1 << 20  # of a layer or a batch: a larger number is a typing error
LARGEST_NUMBER = 1e300  # Optuna computes differences and products of them
LARGEST_WEIGHTS = 1 << 28  # between hidden layers, 1 GB of float32
MOST_STEPS = 1_000_000


@dataclass(frozen=True)
class Kind:
    """The values that a hyper-parameter may have; `expected` describes them in errors."""

    expected: str
    fits: Callable[[Any], bool]
    whole: bool = False
    ranged: bool = True


def _number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < LARGEST_NUMBER


def _whole(least: int, most: int = LARGEST_SIZE) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _word(known: tuple[str, ...]) -> Kind:
    return Kind(f"one of {', '.join(known)}", lambda value: value in known, ranged=False)


def _text(example: str, parse: Callable[[Any], Any]) -> Kind:
    """Texts that a function parses."""

    def fits(value: Any) -> bool:
        try:
            return isinstance(value, str) and parse(value) is not None
        except SettingError:
            return False

    return Kind(f"texts such as {example}", fits, ranged=False)


# Hyper-parameters of the training, for every network.
TRAINING = {
    "rate": Kind("numbers above 0", lambda v: _number(v) and v > 0),
    "momentum": Kind("numbers from 0 to below 1", lambda v: _number(v) and 0 <= v < 1),
    "decay": Kind("numbers of 0 or more", lambda v: _number(v) and v >= 0),
    "batch_size": Kind("whole numbers from 1", _whole(1), whole=True),
    "seed": Kind("whole numbers from 0", _whole(0, 2**32), whole=True),
    "optimizer": _text("sgd, nesterov, adam, adamw or lion", optimizers.parse),
    "schedule": _text(schedules.EXAMPLES, schedules.parse),
    "smoothing": Kind("numbers from 0 to below 1", lambda v: _number(v) and 0 <= v < 1),
    "augment": _text("'flip,crop:4,cutout:8'", Augmentation.parse),
    "clip": Kind("numbers above 0", lambda v: _number(v) and v > 0),
    "average": Kind("numbers from 0 to below 1", lambda v: _number(v) and 0 <= v < 1),
}
# Hyper-parameters of the network itself, for MLPs.
SHAPE = {
    "width": Kind("whole numbers from 1", _whole(1), whole=True),
    "hidden": Kind("whole numbers from 1 to 64", _whole(1, 64), whole=True),
    "activation": _word(tuple(ACTIVATIONS)),
}


@dataclass(frozen=True)
class Space:
    """Ranges, choices and fixed values, by the name of the hyper-parameter.

    >>> space = parse({"rate": {"low": 0.01, "high": 1.0, "log": True}, "momentum": 0.9})
    >>> space.searched, space.fixed
    (['rate'], {'momentum': 0.9})
    """

    ranges: dict[str, dict[str, Any]]
    choices: dict[str, list[Any]]
    fixed: dict[str, Any]

    @property
    def searched(self) -> list[str]:
        """The names of the hyper-parameters that are not fixed."""
        return [*self.ranges, *self.choices]

    @property
    def shaped(self) -> bool:
        """Whether it has hyper-parameters of the network itself."""
        return any(name in SHAPE for name in (*self.searched, *self.fixed))

    def distributions(self) -> "dict[str, BaseDistribution]":
        """The space as Optuna takes it."""
        from optuna.distributions import (
            CategoricalDistribution,
            FloatDistribution,
            IntDistribution,
        )

        found: dict[str, BaseDistribution] = {}
        for name, bounds in self.ranges.items():
            kind = IntDistribution if _kind(name).whole else FloatDistribution
            found[name] = kind(**bounds)
        for name, values in self.choices.items():
            found[name] = CategoricalDistribution(values)
        return found

    def plain(self) -> dict[str, Any]:
        """The space as JSON can hold it: what `parse` takes."""
        return {**self.ranges, **self.choices, **self.fixed}

    def has(self, name: str, value: Any) -> bool:
        """Whether a searched hyper-parameter may have a value; ranges are not enforced.

        >>> space = parse({"rate": {"low": 0.01, "high": 1.0, "log": True}, "width": [4, 8]})
        >>> space.has("rate", 2.0), space.has("rate", 0), space.has("width", 5)
        (True, False, False)
        """
        if name in self.choices:
            return value in self.choices[name]
        return _number(value) and (value > 0 or not self.ranges[name].get("log"))

    def expected(self, name: str) -> str:
        """What `has` accepts, for an error message."""
        if name in self.choices:
            return f"one of {', '.join(map(str, self.choices[name]))}"
        return "a number above 0" if self.ranges[name].get("log") else "a number"


def read(path: Path) -> Space:
    """The space in a TOML file.

    Raises:
        DataError: the file cannot be read, is not TOML, or has a value that is not allowed.
    """
    try:
        found = tomllib.loads(regular(path, LARGEST_FILE).read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: expected a file to read; got: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # and a number of more digits than Python reads
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: expected TOML; got: {str(error)[:200]}") from error
    return parse(found, str(path))


def parse(found: dict[str, Any], source: str = "space") -> Space:
    """The space that a dict describes; `source` is named in errors.

    >>> parse({"rate": [0.1, 0]})
    Traceback (most recent call last):
    pareo.errors.DataError: space: rate expects numbers above 0; got 0
    """
    space = Space({}, {}, {})
    for name, value in found.items():
        if name not in TRAINING and name not in SHAPE:
            known = ", ".join((*TRAINING, *SHAPE))
            raise DataError(f"{source}: expected some of {known}; got {shown(name)}")
        place = f"{source}: {name}"
        if isinstance(value, dict):
            space.ranges[name] = _range(name, value, place)
        elif isinstance(value, list):
            space.choices[name] = _choices(name, value, place)
        else:
            _check(name, value, place)
            space.fixed[name] = value
    if not space.searched:
        example = "rate = { low = 0.001, high = 1.0, log = true }"
        raise DataError(f"{source}: expected something to search, such as {example}; got nothing")
    _check_width(space, source)
    return space


def _check_width(space: Space, source: str) -> None:
    """Refuse layers that no machine has the memory for, before one of them is proposed."""
    width, hidden = _most(space, "width"), _most(space, "hidden")
    if max(1, hidden - 1) * width**2 > LARGEST_WEIGHTS:
        raise DataError(
            f"{source}: width expects layers with at most {LARGEST_WEIGHTS:,} weights between "
            f"them; got {max(2, hidden)} layers of {width:,}"
        )


def _most(space: Space, name: str) -> int:
    """The largest value that a hyper-parameter may have; 1 if it is not in the space."""
    if name in space.ranges:
        return int(space.ranges[name]["high"])
    return int(max(space.choices.get(name, [space.fixed.get(name, 1)])))


def _range(name: str, found: dict[str, Any], place: str) -> dict[str, Any]:
    kind = _kind(name)
    if not kind.ranged:
        raise DataError(f'{place} expects words, such as ["a", "b"]; got a range')
    for key in found:
        if key not in ("low", "high", "log", "step"):
            raise DataError(f"{place} expects low, high, log or step; got {shown(key)}")
    for key in ("low", "high"):
        if key not in found:
            raise DataError(f"{place} expects low and high; {key} is missing")
        _check(name, found[key], place)
    low, high, log, step = found["low"], found["high"], found.get("log"), found.get("step")
    if low >= high:
        raise DataError(f"{place} expects low below high; got {low} and {high}")
    if log is not None and type(log) is not bool:
        raise DataError(f"{place} expects log to be true or false; got {shown(log)}")
    if log and low <= 0:
        raise DataError(f"{place} expects low above 0 where log is true; got {low}")
    if step is not None:
        if log:
            raise DataError(f"{place} expects log or step, not both")
        if not (_whole(1)(step) if kind.whole else _number(step) and step > 0):
            raise DataError(f"{place} expects a step above 0; got {shown(step)}")
        if step > high - low:
            raise DataError(f"{place} expects a step of at most high - low; got {step}")
        if (high - low) / MOST_STEPS > step:
            raise DataError(f"{place} expects at most {MOST_STEPS:,} steps; got steps of {step}")
    return {key: value for key, value in found.items() if value is not None}


def _choices(name: str, values: list[Any], place: str) -> list[Any]:
    if not values:
        raise DataError(f"{place} expects at least one choice; got none")
    for value in values:
        _check(name, value, place)
    if len(set(values)) != len(values):
        raise DataError(f"{place} expects choices that differ; got {shown(values)}")
    return values


def _check(name: str, value: Any, place: str) -> None:
    if isinstance(value, dict | list) or not _kind(name).fits(value):
        raise DataError(f"{place} expects {_kind(name).expected}; got {shown(value)}")


def _kind(name: str) -> Kind:
    return TRAINING.get(name) or SHAPE[name]
