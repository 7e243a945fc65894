"""JSON from outside, within limits of size, depth and digits."""

import json
import math
import re
from typing import Any

import numpy as np

DEEPEST = 100  # containers inside each other; functions that recurse reach their limit beyond
LONGEST_INTEGER = 1000  # digits
LARGEST = 64 << 20  # characters
LEAST = 1e-100  # a float below counts as 0: nothing measured is so small, and its inverse overflows

_NOT_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[^\[\]{}"]+')
_ODD_FLOAT = re.compile(r"[eE][+-]?[0-9]{3}|[0-9]{300}|\.0{90}")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class NotJson(ValueError):
    """A text is no JSON, or beyond a limit; the message is a short sentence."""


def loads(text: str, largest: int = LARGEST, allow_nan: bool = False) -> Any:
    """The value of a JSON text.

    Args:
        allow_nan: whether it may have NaN and Infinity, as Python writes them.

    Raises:
        NotJson: it is not valid, too large or too deep, or has a number that is not finite.

    Example:
        >>> loads('{"a": [1, 2.5]}')
        {'a': [1, 2.5]}
        >>> loads("1e400")
        Traceback (most recent call last):
        pareo.strict_json.NotJson: 1e400 is too large a number
    """
    if len(text) > largest:
        raise NotJson(f"it has {len(text):,} characters, more than {largest:,}")
    _check_depth(text)
    # Only where it can matter: a function for every number would be slow.
    parse_float = _finite if _ODD_FLOAT.search(text) else None
    try:
        found = json.loads(
            text,
            parse_constant=None if allow_nan else _constant,
            parse_float=parse_float,
            parse_int=_parse_int(text),
        )
        if _SURROGATE.search(text):  # maybe half a character, which no file or terminal can hold
            json.dumps(found, ensure_ascii=False).encode()
    except NotJson:
        raise
    except UnicodeEncodeError as error:
        raise NotJson("it has text that is no Unicode") from error
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)[:200]) from error
    return found


def shown(value: Any) -> str:
    """A value from outside for an error message: one short, printable line.

    >>> shown(list(range(100)))[:20], len(shown("x" * 100))
    ('[0, 1, 2, 3, 4, 5, 6', 60)
    """
    try:
        return f"{value!a:.60}"
    except (ValueError, RecursionError):  # a whole number of thousands of digits
        return f"a {type(value).__name__} that is too large to show"


def _check_depth(text: str) -> None:
    brackets = np.frombuffer(_NOT_BRACKETS.sub("", text).encode("ascii", "replace"), np.uint8)
    opening = (brackets == ord("[")) | (brackets == ord("{"))
    depth = np.cumsum(np.where(opening, 1, -1))
    if len(depth) and int(depth.max()) > DEEPEST:
        raise NotJson(f"it has more than {DEEPEST} levels")


def _constant(word: str) -> float:
    raise NotJson(f"{word} is no number of JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise NotJson(f"{digits[:40]} is too large a number")
    return value if abs(value) >= LEAST else 0.0


def _parse_int(text: str) -> Any:
    return _whole if re.search(rf"[0-9]{{{LONGEST_INTEGER}}}", text) else None


def _whole(digits: str) -> int:
    if len(digits) > LONGEST_INTEGER:
        raise NotJson(f"a whole number has {len(digits):,} digits")
    return int(digits)
