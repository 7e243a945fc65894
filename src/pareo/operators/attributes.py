"""Parsers of attributes: each makes one kind of argument canonical, or raises an error."""

import math
from typing import Annotated, Any

import numpy as np

from pareo.operators.core import Where
from pareo.seeds import whole_number


def _wholes(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, (tuple, list)):
        return None
    found = [whole_number(item) for item in value]
    return None if None in found else tuple(found)  # type: ignore[arg-type]


def pair(value: Any, where: Where) -> tuple[int, int]:
    """A size along height and width, each at least 1; one number means both."""
    one = whole_number(value)
    both = (one, one) if one is not None else _wholes(value)
    if both is None or len(both) != 2 or min(both) < 1:
        raise where.expects("one or two whole numbers of at least 1", value)
    return both[0], both[1]


def stride_or_size(value: Any, where: Where) -> tuple[int, int]:
    """A stride; by default the size of the window."""
    return where.attributes["size"] if value is None else pair(value, where)


def padding(value: Any, where: Where) -> tuple[int, int, int, int]:
    """Padding as (top, left, bottom, right), from one number, two (vertical first) or all four."""
    one = whole_number(value)
    sides = (one, one) if one is not None else _wholes(value)
    if sides is not None and len(sides) == 2:
        sides = (*sides, *sides)
    if sides is None or len(sides) != 4 or min(sides) < 0:
        raise where.expects(
            "(vertical, horizontal) or (top, left, bottom, right) of at least 0", value
        )
    return sides[0], sides[1], sides[2], sides[3]


def widths(value: Any, where: Where) -> tuple[tuple[int, int], ...]:
    """How many elements come before and after each axis of the first operand."""
    ndim = where.operands[0].ndim
    if isinstance(value, (tuple, list)) and len(value) == ndim:
        pairs = [_wholes(item) for item in value]
        if all(item is not None and len(item) == 2 and min(item) >= 0 for item in pairs):
            return tuple((item[0], item[1]) for item in pairs if item is not None)
    raise where.expects(f"a pair (before, after) of at least 0 for each of {ndim} axes", value)


def count(value: Any, where: Where) -> int:
    """A whole number of at least 1."""
    number = whole_number(value)
    if number is None or number < 1:
        raise where.expects("a whole number of at least 1", value)
    return number


def size(value: Any, where: Where) -> int:
    """A whole number of at least 0."""
    number = whole_number(value)
    if number is None or number < 0:
        raise where.expects("a whole number of at least 0", value)
    return number


def axis(value: Any, where: Where) -> int:
    """One axis of the first operand, counted from the front."""
    ndim = where.operands[0].ndim
    number = whole_number(value)
    if number is None or not -ndim <= number < ndim:
        raise where.expects(f"an axis of an array of {ndim} dimensions", value)
    return number % ndim


def axis_or_none(value: Any, where: Where) -> int | None:
    """One axis, or None for the flattened array."""
    return None if value is None else axis(value, where)


def axes(value: Any, where: Where) -> tuple[int, ...]:
    """Some axes of the first operand in order; None means all of them."""
    if value is None:
        return tuple(range(where.operands[0].ndim))
    one = whole_number(value)
    several = (one,) if one is not None else _wholes(value)
    if several is None:
        raise where.expects("an axis, several axes, or None for all", value)
    found = sorted(axis(item, where) for item in several)
    if len(set(found)) != len(found):
        raise where.expects("axes that differ from each other", value)
    return tuple(found)


def permutation(value: Any, where: Where) -> tuple[int, ...]:
    """An order of all axes; None reverses them."""
    ndim = where.operands[0].ndim
    if value is None:
        return tuple(reversed(range(ndim)))
    several = _wholes(value)
    found = tuple(axis(item, where) for item in several or ())
    if sorted(found) != list(range(ndim)):
        raise where.expects(f"an order of all {ndim} axes", value)
    return found


def shape(value: Any, where: Where) -> tuple[int, ...]:
    """A shape without unknown sizes."""
    one = whole_number(value)
    sizes = (one,) if one is not None else _wholes(value)
    if sizes is None or any(size < 0 for size in sizes):
        raise where.expects("a shape of sizes of at least 0", value)
    return sizes


def shape_of_same_size(value: Any, where: Where) -> tuple[int, ...]:
    """A shape that holds the first operand's elements; one size may be -1, to be inferred."""
    old = where.operands[0]
    one = whole_number(value)
    sizes = (one,) if one is not None else _wholes(value)
    if sizes is None or sizes.count(-1) > 1 or any(size < -1 for size in sizes):
        raise where.expects("a shape, with at most one size left as -1", value)
    known = math.prod(size for size in sizes if size != -1)
    if -1 in sizes and known:
        sizes = tuple(old.size // known if size == -1 else size for size in sizes)
    if -1 in sizes or math.prod(sizes) != old.size:
        raise where.expects(f"a shape of the {old.size} elements of {old.shape}", value)
    return sizes


def flag(value: Any, where: Where) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise where.expects("True or False", value)
    return value


def real(value: Any, where: Where) -> float:
    """A finite number."""
    known = isinstance(value, (int, float, np.integer, np.floating))
    if isinstance(value, bool) or not known or not math.isfinite(value):
        raise where.expects("a finite number", value)
    return float(value)


def share(value: Any, where: Where) -> float:
    """A number from 0 up to, but not including, 1."""
    number = real(value, where)
    if not 0 <= number < 1:
        raise where.expects("at least 0 and below 1", value)
    return number


Pair = Annotated[Any, pair]
StrideOrSize = Annotated[Any, stride_or_size]
Padding = Annotated[Any, padding]
Widths = Annotated[Any, widths]
Count = Annotated[int, count]
Size = Annotated[int, size]
Axis = Annotated[int, axis]
AxisOrNone = Annotated[Any, axis_or_none]
Axes = Annotated[Any, axes]
Permutation = Annotated[Any, permutation]
Shape = Annotated[Any, shape]
ShapeOfSameSize = Annotated[Any, shape_of_same_size]
Flag = Annotated[bool, flag]
Real = Annotated[float, real]
Share = Annotated[float, share]
