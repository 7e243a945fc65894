"""What all kernels of `sequential` use: reading one element, and IEEE 754 arithmetic.

Python raises an error where IEEE 754 defines an infinity or a NaN; these functions return that.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pareo.backends.base import Backend

backend = Backend("sequential")
Index = tuple[int, ...]


def at(a: Any, index: Index) -> float:
    """The element of a at an index, with a broadcast to as many axes as the index has.

    >>> at(np.array([[1.0], [2.0]]), (5, 1, 3))
    2.0
    """
    own = index[len(index) - a.ndim :]
    return float(a[tuple(0 if size == 1 else i for i, size in zip(own, a.shape, strict=True))])


def store(out: Any, sums: Mapping[Index, float]) -> None:
    """Write sums that were computed in double precision, so that each is rounded once."""
    for index in np.ndindex(out.shape):
        out[index] = sums[index]


def beats(value: float, best: float) -> bool:
    """Whether value replaces the best so far; a NaN beats all but another NaN.

    >>> beats(2.0, 1.0), beats(1.0, 1.0), beats(math.nan, 1.0), beats(1.0, math.nan)
    (True, False, True, False)
    """
    return value > best or (math.isnan(value) and not math.isnan(best))


def divide(a: float, b: float) -> float:
    """a / b; by zero it is an infinity, or NaN for 0 / 0.

    >>> divide(1.0, 2.0), divide(1.0, -0.0), divide(0.0, 0.0)
    (0.5, -inf, nan)
    """
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def exp(a: float) -> float:
    """e to the power of a; too large a result is infinite.

    >>> exp(0.0), exp(1000.0)
    (1.0, inf)
    """
    try:
        return math.exp(a)
    except OverflowError:
        return math.inf


def log(a: float) -> float:
    """The natural logarithm; that of 0 is -inf, that of a negative number NaN.

    >>> log(1.0), log(0.0), log(-1.0)
    (0.0, -inf, nan)
    """
    if a > 0:
        return math.log(a)
    return -math.inf if a == 0 else math.nan


def power(a: float, b: float) -> float:
    """a to the power of b; out of range it is infinite, a root of a negative number is NaN.

    >>> power(4.0, 0.5), power(0.0, -1.0), power(-1.0, 0.5), power(-1e200, 3.0)
    (2.0, inf, nan, -inf)
    """
    try:
        return math.pow(a, b)
    except (OverflowError, ValueError):
        if a < 0 and not b.is_integer():
            return math.nan
        return math.copysign(math.inf, a) if b % 2 == 1 else math.inf


def sqrt(a: float) -> float:
    """The square root; that of a negative number is NaN.

    >>> sqrt(4.0), sqrt(-1.0)
    (2.0, nan)
    """
    return math.nan if a < 0 else math.sqrt(a)


def larger(a: float, b: float) -> float:
    """The larger of two numbers; NaN where one is.

    >>> larger(1.0, 2.0), larger(math.nan, 2.0)
    (2.0, nan)
    """
    return a if math.isnan(a) or a > b else b


def smaller(a: float, b: float) -> float:
    """The smaller of two numbers; NaN where one is.

    >>> smaller(1.0, 2.0), smaller(math.nan, 2.0)
    (1.0, nan)
    """
    return a if math.isnan(a) or a < b else b


def sign(a: float) -> float:
    """1 or -1, as a has it; 0 and NaN stay.

    >>> sign(3.0), sign(-2.0), sign(0.0), sign(math.nan)
    (1.0, -1.0, 0.0, nan)
    """
    return a if a == 0 or math.isnan(a) else math.copysign(1.0, a)
