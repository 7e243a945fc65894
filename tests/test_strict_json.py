"""JSON from outside: what Python reads is read, within limits."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pareo import strict_json
from pareo.strict_json import NotJson, loads

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def rounded(value: object) -> object:
    """The value with floats that count as 0."""
    if isinstance(value, float):
        return value if abs(value) >= strict_json.LEAST else 0.0
    if isinstance(value, list):
        return [rounded(one) for one in value]
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return value


@settings(max_examples=40)
@given(VALUES)
def test_it_is_what_python_reads(value: object) -> None:
    assert rounded(loads(json.dumps(value))) == rounded(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 101 + "]" * 101, "more than 100 levels"),
        ('{"a":' * 200_000, "more than 100 levels"),
        ("9" * 5000, "a whole number has 5,000 digits"),
        ("1e400", "1e400 is too large"),
        ("-" + "9" * 400 + ".0", "is too large"),
        ("NaN", "NaN is no number"),
        ("[-Infinity]", "-Infinity is no number"),
        (r'"\ud800"', "no Unicode"),
        ("{", "Expecting property name"),
        ("", "Expecting value"),
    ],
)
def test_beyond_a_limit_it_is_refused(text: str, said: str) -> None:
    with pytest.raises(NotJson, match=said):
        loads(text)


def test_brackets_in_text_are_no_levels_and_whole_characters_are_kept() -> None:
    assert loads(json.dumps(["[" * 500 + '"\\' + "{" * 500, "😀"])) == [
        "[" * 500 + '"\\' + "{" * 500,
        "😀",
    ]
    with pytest.raises(NotJson, match="more than 5"):
        loads("1234567", largest=5)
