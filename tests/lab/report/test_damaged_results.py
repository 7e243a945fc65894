"""Results that are wrong somewhere: a report is drawn, or one sentence says what is wrong."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import arena_result
import kernels_result
import pytest
import race_result
import replication_result
import sweep_result
from hypothesis import given, settings
from hypothesis import strategies as st
from ops_result import plain as ops_plain

from pareo.errors import DataError
from pareo.lab import report
from pareo.lab.experiment import results

GONE = object()
WRONG = [None, "x", "", -1, 0, 1.5, 10**400, float("nan"), True, [], {}, [1], ["x"], {"a": 1}, GONE]
WHOLE: dict[str, Any] = {
    "race": race_result.made(),
    "kernels": kernels_result.made(),
    "sweep": sweep_result.made(),
    "ops": ops_plain(),
    "arena": arena_result.made(),
    "paper": replication_result.made(),
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


def shown(text: str) -> str:
    """The report of a result in a text, or the sentence that says why there is none."""
    try:
        return report.html(results.parsed(text, "some file"))
    except DataError as error:
        return str(error)


@pytest.mark.parametrize("kind", WHOLE)
@given(st.data())
@settings(max_examples=150)
def test_it_is_drawn_or_refused(kind: str, data: st.DataObject) -> None:
    whole = WHOLE[kind]
    *way, last = data.draw(st.sampled_from(list(places(whole))))
    value = data.draw(st.sampled_from(WRONG))
    inner = result = deepcopy(whole)
    for key in way:
        inner = inner[key]
    if value is GONE:
        del inner[last]
    else:
        inner[last] = value
    assert shown(json.dumps(result)).startswith(("<!doctype html>", "some file"))


@pytest.mark.parametrize("kind", WHOLE)
def test_half_a_character_is_refused(kind: str) -> None:
    whole = WHOLE[kind]
    said = shown(json.dumps({**whole, "network": "\ud800"}))
    assert said.startswith("some file: expected JSON; got: it has text that is no Unicode")
    whole_character = json.dumps({**whole, "network": "\U0001f3c1"})
    assert "\\ud83c" in whole_character
    assert shown(whole_character).startswith("<!doctype html>")
