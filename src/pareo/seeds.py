"""Seeds are whole numbers from 0, wherever one is given."""

import operator
from typing import Any

import numpy as np

from pareo.errors import DtypeError


def checked_seed(name: str, value: Any) -> int:
    """The seed as an int; a fraction is an error rather than rounded.

    >>> checked_seed("initialise", 2.9)
    Traceback (most recent call last):
    pareo.errors.DtypeError: initialise expects a seed that is a whole number from 0; got 2.9
    """
    number = whole_number(value)
    if number is None or number < 0:
        raise DtypeError(f"{name} expects a seed that is a whole number from 0; got {value!r}")
    return number


def whole_number(value: Any) -> int | None:
    """A value as an int if it is a whole number, of Python's or NumPy's; else None.

    >>> whole_number(np.int32(3)), whole_number(True), whole_number(3.0)
    (3, None, None)
    """
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
