"""What a contestant's process sends, as bytes: MessagePack of plain data, and nothing to execute.

Numbers, text, bytes, containers, paths, and NumPy's arrays and numbers. Containers that MessagePack
does not have are written as an object with one key that names their kind. A dataclass is sent as
the dict of its fields: the receiver knows which type it asked for.
"""

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

import msgspec
import numpy as np

DEEPEST = 64
DIMENSIONS = 32
DIGITS = 100  # of a whole number that has no room in 64 bits
_DTYPE = re.compile(r"[<>|=]?[biufc][0-9]{1,2}")


class NotPlain(ValueError):
    """An answer that holds something else."""


def dumps(value: Any) -> bytes:
    """The bytes of an answer.

    >>> loads(dumps({"loss": 0.5, "sizes": (1, np.int64(2))}))
    {'loss': 0.5, 'sizes': (1, np.int64(2))}
    >>> dumps(print)
    Traceback (most recent call last):
    pareo.lab.experiment.plain_data.NotPlain: its answer holds a builtin_function_or_method
    """
    return msgspec.msgpack.encode(_packed(value, DEEPEST))


def loads(packed: bytes) -> Any:
    """The answer in these bytes; NotPlain where they are not what `dumps` writes."""
    try:
        return _unpacked(msgspec.msgpack.decode(packed), DEEPEST)
    except NotPlain:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
        raise NotPlain(f"its answer cannot be read: {error}") from None


def _packed(value: Any, depth: int) -> Any:
    if depth < 0:
        raise NotPlain(f"its answer has more than {DEEPEST} levels")
    if value is None or type(value) in (bool, float, str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return {"array": _array(np.asarray(value), isinstance(value, np.generic))}
    match value:
        case int():
            number = int(value)
            return number if -(2**63) <= number < 2**64 else {"int": str(number)}
        case float():
            return float(value)
        case str():
            return str(value)
        case bytes() | bytearray():
            return {"bytes": bytes(value)}
        case complex():
            return {"complex": [value.real, value.imag]}
        case PurePath():
            return {"path": str(value)}
        case list():
            return [_packed(one, depth - 1) for one in value]
        case tuple():
            return {"tuple": [_packed(one, depth - 1) for one in value]}
        case set() | frozenset():
            return {"set": [_packed(one, depth - 1) for one in value]}
        case dict():
            return {"dict": _pairs(value.items(), depth)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(one.name, getattr(value, one.name)) for one in dataclasses.fields(value)]
        return {"dict": _pairs(fields, depth)}
    raise NotPlain(f"its answer holds a {type(value).__name__}")


def _pairs(items: Any, depth: int) -> list[Any]:
    return [[_packed(key, depth - 1), _packed(one, depth - 1)] for key, one in items]


def _array(array: np.ndarray, single: bool) -> list[Any]:
    if not _DTYPE.fullmatch(array.dtype.str):
        raise NotPlain(f"its answer holds an array of {array.dtype.name}")
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return [array.dtype.str, list(array.shape), single, data]


def _unpacked(value: Any, depth: int) -> Any:
    if depth < 0:
        raise NotPlain(f"its answer has more than {DEEPEST} levels")
    if value is None or type(value) in (bool, float, str, int):
        return value
    if type(value) is list:
        return [_unpacked(one, depth - 1) for one in value]
    if type(value) is dict and len(value) == 1:
        ((kind, content),) = value.items()
        if kind in _KINDS:
            return _KINDS[kind](content, depth)
    raise NotPlain(f"its answer holds a {type(value).__name__} of no known kind")


def _items(content: Any, depth: int) -> list[Any]:
    if type(content) is not list:
        raise NotPlain("its answer holds a container without a list")
    return [_unpacked(one, depth - 1) for one in content]


def _mapping(content: Any, depth: int) -> dict[Any, Any]:
    if type(content) is not list or any(type(one) is not list or len(one) != 2 for one in content):
        raise NotPlain("its answer holds a dict that is no list of pairs")
    return {_unpacked(key, depth - 1): _unpacked(one, depth - 1) for key, one in content}


def _from_array(content: Any, depth: int) -> Any:
    dtype, shape, single, data = content
    if type(dtype) is not str or not _DTYPE.fullmatch(dtype) or type(data) is not bytes:
        raise NotPlain("its answer holds an array without dtype or data")
    if type(shape) is not list or len(shape) > DIMENSIONS or not all(map(_is_size, shape)):
        raise NotPlain("its answer holds an array without a shape")
    kind = np.dtype(dtype)
    if len(data) != kind.itemsize * math.prod(shape) or (single and shape):
        raise NotPlain(f"its answer holds {len(data):,} bytes for {kind.name} of shape {shape}")
    array = np.frombuffer(data, kind).reshape(shape)
    return array[()] if single else array.copy()  # writable, and not the whole message


def _is_size(size: Any) -> bool:
    return type(size) is int and 0 <= size < 1 << 48


def _of_type(expected: type, make: Callable[[Any], Any]) -> Callable[[Any, int], Any]:
    def made(content: Any, depth: int) -> Any:
        if type(content) is not expected:
            raise NotPlain(f"its answer holds a {type(content).__name__} for a {expected.__name__}")
        return make(content)

    return made


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise NotPlain(f"its answer holds a number of {len(digits):,} digits")
    return int(digits)


_KINDS: dict[str, Callable[[Any, int], Any]] = {
    "array": _from_array,
    "bytes": _of_type(bytes, bytes),
    "complex": lambda content, depth: complex(*map(float, content)),
    "dict": _mapping,
    "int": _of_type(str, _whole),
    "path": _of_type(str, Path),
    "set": lambda content, depth: set(_items(content, depth)),
    "tuple": lambda content, depth: tuple(_items(content, depth)),
}
