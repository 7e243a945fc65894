"""Numbers as text: no more digits than are significant, and no powers of ten of large ones."""

import math


def digits(value: float) -> str:
    """A number with four significant digits.

    >>> digits(5213.4), digits(1.23456), digits(0.000123456)
    ('5,213', '1.235', '0.0001235')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def span(low: float, high: float) -> str:
    """The two ends of an interval, or "cannot tell" where it has none.

    >>> span(1.9, 2.25), span(0.0, math.inf)
    ('1.9 to 2.25', 'cannot tell')
    """
    return f"{digits(low)} to {digits(high)}" if math.isfinite(high) else "cannot tell"


def few_digits(value: float) -> str:
    """A number with two significant digits, and with all whole ones if it is large.

    >>> few_digits(1.68), few_digits(43.7), few_digits(143.2), few_digits(11264)
    ('1.7', '44', '143', '11,264')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}"


def times(value: float | None) -> str:
    """A ratio of times, as in "2.05 times as fast"; empty where it is not known.

    >>> times(2.0481), times(None)
    ('2.05', '')
    """
    return "" if value is None else f"{value:.2f}"


def percent(value: float | None) -> str:
    """A share; empty where it is not known.

    >>> percent(0.123), percent(None)
    ('12%', '')
    """
    return "" if value is None else f"{value:.0%}"


def seconds(value: float) -> str:
    """A duration in the unit that suits it.

    >>> seconds(1.5), seconds(0.0123456), seconds(3.21e-6)
    ('1.5 s', '12.35 ms', '3.21 us')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size or unit == "us":
            return f"{digits(value / size)} {unit}"
    raise AssertionError


def counted(count: int, word: str) -> str:
    """A number of things.

    >>> counted(1, "thread"), counted(2048, "step")
    ('1 thread', '2,048 steps')
    """
    return f"{count:,} {word}{'' if count == 1 else 's'}"
