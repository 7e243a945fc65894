"""Ways to damage bytes, texts and JSON that were valid."""

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

DEEP = 3000
NUMBERS = (
    b"0", b"-1", b"1e400", b"-1e400", b"1e-320", b"9" * 30, b"9" * 5000, b"NaN", b"Infinity",
    b"18446744073709551615", b"0.1e", b"00", b"1_000",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 10**9, 2**31, 2**63, 2**64 - 1, 10**25, 0.5, -0.5, 1e-320,
    1e-300, 1e300, 1.8e308, float("nan"), float("inf"), "", "a", "0", "\ud800", "a\0b", "é" * 300,
    "../../x", "<script>alert(1)</script>", "\x1b[31m", "=1+1", [], {}, [None], [[]], {"a": 1},
    [1, 2, 3], ["a"], {"": {}}, [[1, 2], [3]],
)  # fmt: skip


def damaged(random: Random, raw: bytes) -> bytes:
    """The bytes, damaged in one to three places."""
    out = bytearray(raw)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if not out:
            return b"\0"
        at, length = random.randrange(len(out)), random.choice((1, 1, 2, 4, 8, 64))
        match random.randrange(8):
            case 0:
                del out[at:]
            case 1:
                out[at] ^= 1 << random.randrange(8)
            case 2:
                out[at : at + length] = random.randbytes(length)
            case 3:
                out[at : at + length] = b"\xff" * length
            case 4:
                out[at : at + length] = b"\0" * length
            case 5:
                del out[at : at + length]
            case 6:
                out[at:at] = random.randbytes(length)
            case 7:
                other = random.randrange(len(out))
                out[at : at + length] = out[other : other + length]
    return bytes(out)


def damaged_text(random: Random, text: str) -> bytes:
    """A text of numbers, words and brackets with one of them replaced, nested or multiplied."""
    raw = text.encode()
    tokens = list(_tokens(raw))
    if not tokens or random.random() < 0.4:
        return damaged(random, raw)
    begin, end = random.choice(tokens)
    deep = random.choice((60, 300, DEEP))
    new = random.choice(
        (
            *NUMBERS,
            b"[" * deep + b"]" * deep,
            b'{"a":' * deep + b"1" + b"}" * deep,
            b"[" * deep,
            rb'"\ud800"',
            b'"' + b"a" * 100_000 + b'"',
            b"\xff\xfe",
            raw[begin:end] * 3,
            b"null",
            b"",
        )
    )
    return raw[:begin] + new + raw[end:]


def _tokens(raw: bytes) -> Iterator[tuple[int, int]]:
    begin = None
    for at, byte in enumerate(raw):
        inside = chr(byte).isalnum() or byte in b"_.+-\"'"
        if inside and begin is None:
            begin = at
        elif not inside and begin is not None:
            yield begin, at
            begin = None


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in plain data, the containers included."""
    if path:
        yield path
    if isinstance(data, dict):
        for key, value in data.items():
            yield from places(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data[:3]):
            yield from places(value, (*path, index))


def altered(random: Random, data: Any) -> Any:
    """A copy of plain data with another value, of any type, at one to three places."""
    data = copy.deepcopy(data)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        found = list(places(data))
        if not found:
            return data
        path = random.choice(found)
        inner = data
        for step in path[:-1]:
            inner = inner[step]
        match random.randrange(6):
            case 0 if isinstance(inner, dict):
                del inner[path[-1]]
            case 1 if isinstance(inner, dict):
                inner[random.choice(("", "a", "kind", "x" * 200))] = inner.pop(path[-1])
            case 2 if isinstance(inner[path[-1]], list):
                inner[path[-1]] = inner[path[-1]] * random.choice((0, 2, 50))
            case 3:
                inner[path[-1]] = nested(random.choice((5, 40, 200)), inner[path[-1]])
            case _:
                inner[path[-1]] = copy.deepcopy(random.choice(VALUES))
    return data


def nested(depth: int, inside: Any) -> Any:
    """Lists in lists."""
    for _ in range(depth):
        inside = [inside]
    return inside


def as_json(data: Any) -> bytes:
    """The text of damaged data, which Python's writer accepts as it is."""
    return json.dumps(data).encode()
