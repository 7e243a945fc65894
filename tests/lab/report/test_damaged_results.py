"""Results that are wrong somewhere: a report is drawn, or one sentence says what is wrong."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
import race_result
import sweep_result
from hypothesis import given, settings
from hypothesis import strategies as st
from ops_result import plain as ops_plain

from pareo.errors import DataError
from pareo.lab.experiment import results
from pareo.lab.report import ops, page, sweep

GONE = object()
WRONG = [None, "x", "", -1, 0, 1.5, 10**400, float("nan"), True, [], {}, [1], ["x"], {"a": 1}, GONE]
DRAWN: dict[str, tuple[Any, Callable[[Any], str]]] = {
    "race": (race_result.made(), page.html),
    "sweep": (sweep_result.made(), sweep.html),
    "ops": (ops_plain(), ops.html),
}


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Everywhere in a result: the way to each field, and to the first elements of each list."""
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value[:2])
    for key, one in inner:
        yield (*here, key)
        yield from places(one, (*here, key))


def shown(text: str, draw: Callable[[Any], str]) -> str:
    """The report of a result in a text, or the sentence that says why there is none."""
    try:
        return draw(results.parsed(text, "some file"))
    except DataError as error:
        return str(error)


@pytest.mark.parametrize("kind", DRAWN)
@given(st.data())
@settings(max_examples=150)
def test_it_is_drawn_or_refused(kind: str, data: st.DataObject) -> None:
    whole, draw = DRAWN[kind]
    *way, last = data.draw(st.sampled_from(list(places(whole))))
    value = data.draw(st.sampled_from(WRONG))
    inner = result = deepcopy(whole)
    for key in way:
        inner = inner[key]
    if value is GONE:
        del inner[last]
    else:
        inner[last] = value
    assert shown(json.dumps(result), draw).startswith(("<!doctype html>", "some file"))


@pytest.mark.parametrize("kind", DRAWN)
def test_half_a_character_is_refused(kind: str) -> None:
    whole, draw = DRAWN[kind]
    said = shown(json.dumps({**whole, "network": "\ud800"}), draw)
    assert said.startswith("some file: expected JSON; got: 'utf-8' codec can't encode")
    whole_character = json.dumps({**whole, "network": "\U0001f3c1"})
    assert "\\ud83c" in whole_character
    assert shown(whole_character, draw).startswith("<!doctype html>")
