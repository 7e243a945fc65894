"""Answers as bytes: plain data come back as they were, and nothing else is accepted or executed."""

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pareo.lab.experiment.plain_data import NotPlain, dumps, loads

ARRAYS = st.sampled_from(["|b1", "|u1", "<i8", ">f4", "<f8", "<c8"]).flatmap(
    lambda kind: arrays.arrays(np.dtype(kind), arrays.array_shapes(min_dims=0, min_side=0))
)
KEYS = st.integers() | st.text() | st.binary() | st.tuples(st.integers(), st.text())
PLAIN = st.recursive(
    st.none() | st.booleans() | st.floats() | KEYS | st.complex_numbers() | ARRAYS,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner),
    max_leaves=10,
)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal in type and content, NaN included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()  # noqa: E501  # fmt: skip
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return repr(one) == repr(other)


@settings(max_examples=40, deadline=None)
@given(PLAIN)
def test_plain_data_come_back_as_they_were(value: Any) -> None:
    assert same(loads(dumps(value)), value)


def test_subclasses_become_plain_and_arrays_are_writable() -> None:
    @dataclasses.dataclass
    class Turn:
        steps: int
        path: Path

    class Word(str):
        pass

    found = loads(dumps([Turn(3, Path("a/b")), Word("x"), {1, 2}, np.float32(0.5), np.arange(3)]))
    assert found[:3] == [{"steps": 3, "path": Path("a/b")}, "x", {1, 2}]
    assert type(found[1]) is str
    assert type(found[3]) is np.float32
    found[4][0] = 7
    fortran = np.asfortranarray(np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(loads(dumps(fortran)), fortran)


class Trap:
    """Were it unpickled, it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_nothing_is_executed(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    with pytest.raises(NotPlain, match="holds a Trap"):
        dumps([Trap(trap)])
    with pytest.raises(NotPlain):
        loads(pickle.dumps(Trap(trap)))
    assert not trap.exists()


def nested(depth: int) -> Any:
    inside: Any = []
    for _ in range(depth):
        inside = [inside]
    return inside


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"array": ["<f8", [2**40], False, b""]}, "0 bytes for float64 of shape .1099"),
        ({"array": ["<f8", [-1], False, b""]}, "without a shape"),
        ({"array": ["<f8", [2], True, bytes(16)]}, "16 bytes for float64"),
        ({"array": ["|O8", [1], False, bytes(8)]}, "without dtype"),
        ({"array": ["<f8", [1], False, "12345678"]}, "without dtype or data"),
        ({"array": ["<f9", [1], False, bytes(9)]}, "cannot be read"),
        ({"array": 3}, "cannot be read"),
        ({"dict": [[[], 1]]}, "unhashable"),
        ({"dict": [[1, 2, 3]]}, "no list of pairs"),
        ({"int": "9" * 5000}, "5,000 digits"),
        ({"int": "x"}, "cannot be read"),
        ({"path": 3}, "a int for a str"),
        ({"tuple": 3}, "without a list"),
        ({"complex": [1, 2, 3]}, "cannot be read"),
        ({"exec": "1"}, "no known kind"),
        ({}, "no known kind"),
        (nested(70), "more than 64 levels"),
        (nested(5000), "more than 64 levels|cannot be read"),
    ],
)  # fmt: skip
def test_what_is_not_written_so_is_refused(message: Any, said: str) -> None:
    try:
        raw = msgspec.msgpack.encode(message)
    except RecursionError:
        raw = b"\x91" * 5000 + b"\x90"
    with pytest.raises(NotPlain, match=said):
        loads(raw)
    with pytest.raises(NotPlain):
        dumps(nested(70))
