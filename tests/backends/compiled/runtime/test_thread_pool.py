"""The pool of workers: all of the work once, scopes carried, failures told."""

import threading
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pareo import Device
from pareo.backends.compiled.runtime.thread_pool import split, split_numbered, stretches, workers
from pareo.device import get_mode


@given(st.integers(0, 1000), st.integers(1, 9), st.integers(0, 200))
def test_stretches_cover_everything_once(count: int, threads: int, least: int) -> None:
    with Device("compiled", threads=threads):
        found = stretches(count, least)
    assert found[0][0] == 0
    assert found[-1][1] == count
    assert all(a[1] == b[0] for a, b in pairwise(found))
    assert 1 <= len(found) <= threads
    if len(found) > 1:
        assert min(hi - lo for lo, hi in found) >= min(least, count)


def test_work_is_done_in_several_threads_under_the_caller_s_scope() -> None:
    together = threading.Barrier(3, timeout=30)
    seen = []

    def work(part: int, lo: int, hi: int) -> None:
        together.wait()  # passes only if three threads are here at once
        seen.append((part, lo, hi, get_mode(), workers()))

    with Device("compiled", threads=3):
        assert split_numbered(work, 7) == 3
    assert sorted(seen) == [
        (0, 0, 2, "compiled", 1),
        (1, 2, 4, "compiled", 1),
        (2, 4, 7, "compiled", 1),
    ]


def test_work_inside_a_worker_is_not_split_again() -> None:
    counts = []

    def inner(lo: int, hi: int) -> None:
        counts.append(hi - lo)

    with Device("compiled", threads=2):
        split(lambda lo, hi: split(inner, 10), 2)
        assert workers() == 2, "and the caller is no worker afterwards"
    assert counts == [10, 10]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_is_raised_after_everyone_stopped(failing: int) -> None:
    done = []

    def work(lo: int, hi: int) -> None:
        if lo == failing:
            raise RuntimeError("on purpose")
        done.append(lo)

    with Device("compiled", threads=2), pytest.raises(RuntimeError, match="on purpose"):
        split(work, 2)
    assert done == [1 - failing]


def test_many_threads_may_split_at_once() -> None:
    totals: list[int] = []

    def split_often() -> None:
        with Device("compiled", threads=3):
            for _ in range(200):
                seen: list[int] = []
                split(lambda lo, hi, seen=seen: seen.extend(range(lo, hi)), 9)
                totals.append(sum(seen))

    callers = [threading.Thread(target=split_often) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert totals == [sum(range(9))] * 6 * 200
