"""Checks of single settings, each with one sentence that says what was expected."""

import math
from collections.abc import Callable
from typing import Any

from pareo.errors import PareoError
from pareo.seeds import whole_number


class SettingError(PareoError, ValueError):
    """A setting of a run is out of range."""


def whole(name: str, value: Any, least: int) -> int:
    """The value as an int, if it is a whole number of at least `least`.

    >>> whole("epochs", 0, 1)
    Traceback (most recent call last):
    pareo.training.checks.SettingError: fit expects epochs to be a whole number from 1; got 0
    """
    number = whole_number(value)
    if number is None or number < least:
        raise SettingError(f"fit expects {name} to be a whole number from {least}; got {value!r}")
    return number


def word(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Raise an error if the value is not one of the known words."""
    if not isinstance(value, str) or value not in known:
        raise SettingError(f"fit expects a {name} of {' or '.join(known)}; got {value!r}")


def real(what: str, value: Any, fits: Callable[[float], bool]) -> None:
    """Raise an error if the value is not a finite number that fits; `what` says which do.

    >>> real("a rate above 0", -1, lambda value: value > 0)
    Traceback (most recent call last):
    pareo.training.checks.SettingError: fit expects a rate above 0; got -1
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not fits(value):
        raise SettingError(f"fit expects {what}; got {value!r}")


def number(value: float) -> str:
    """A number as short text from which `float` makes the same number.

    >>> number(5.0), number(1e-8), number(0.1)
    ('5', '1e-08', '0.1')
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))
