"""Time on a line: no moment is counted twice, and none is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from pareo.lab.kernels.events import KINDS, Event, Profile, by_kind, credited, rows

pytestmark = pytest.mark.smoke

moments = some.integers(0, 50)
events = some.builds(
    lambda start, length, lane, kind: Event(kind, kind, start, start + length, lane),
    moments,
    some.integers(0, 20),
    some.sampled_from(["a", "b", "c"]),
    some.sampled_from(KINDS),
)


@given(some.lists(events, max_size=12))
def test_credited_seconds_are_those_in_which_anything_ran(seen: list[Event]) -> None:
    busy = sum(any(e.start <= m < e.end for e in seen) for m in range(80))
    assert abs(sum(credited(seen)) - busy) < 1e-9


@given(some.lists(events, max_size=12), some.integers(1, 4))
def test_rows_add_up_to_the_step(seen: list[Event], steps: int) -> None:
    table = rows(Profile("a clock", steps, seconds=80.0, events=seen))
    assert abs(sum(row.seconds for row in table) - 80.0) < 1e-9
    assert abs(sum(row.calls for row in table) * steps - len(seen)) < 1e-9
    totals = by_kind(table).values()
    assert abs(sum(row.seconds for row in totals) - 80.0) < 1e-9


def test_an_operator_within_another_has_its_own_time() -> None:
    seen = [Event("outer", "other", 0.0, 10.0), Event("inner", "gemm", 2.0, 5.0)]
    assert credited(seen) == [7.0, 3.0]


def test_two_threads_share_the_moments_in_which_both_ran() -> None:
    seen = [Event("f", "gemm", 0.0, 4.0, "one"), Event("g", "gemm", 2.0, 6.0, "two")]
    assert credited(seen) == [3.0, 3.0]


def test_the_same_kernel_at_two_shapes_is_two_rows() -> None:
    seen = [Event("dot", "gemm", n, n + 1.0, shape=f"{n}x{n}", flops=2.0) for n in (1, 1, 2)]
    table = rows(Profile("a clock", 1, 3.0, [seen[0], seen[2]]))
    assert [(row.shape, row.flops) for row in table[:-1]] == [("1x1", 2.0), ("2x2", 2.0)]
