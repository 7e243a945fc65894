"""Places of values in the memory between tasks."""

from hypothesis import given
from hypothesis import strategies as st

from pareo.backends.cuda.grid.memory import LINE, Life, starts

LEVEL = st.integers(1, 9)
LIFE = st.builds(
    lambda floats, one, other: Life(floats, min(one, other), max(one, other)),
    st.integers(1, 200),
    LEVEL,
    LEVEL,
)


@given(st.dictionaries(st.integers(0, 50), LIFE, max_size=12))
def test_values_of_one_time_have_places_of_their_own(values):
    found = starts(values)
    assert found.keys() == values.keys()
    for n, one in values.items():
        assert found[n] % LINE == 0
        for m, other in values.items():
            if m != n and one.made <= other.read and other.made <= one.read:
                apart = found[n] + one.floats <= found[m] or found[m] + other.floats <= found[n]
                assert apart, (n, m)


def test_a_place_is_used_again():
    values = {n: Life(320, n, n + 1) for n in range(10)}
    assert max(starts(values).values()) == 320
