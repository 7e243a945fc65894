"""Recorded calls of compiled functions: repeated in order, by several threads, on what is there."""

import os
import threading
from typing import Any

import numpy as np
import pytest

from pareo import Device
from pareo.backends.compiled.runtime import recording, replay
from pareo.backends.compiled.runtime.arrays import add_parts, copy, fill
from pareo.backends.compiled.runtime.jit import holds, jit, recorded
from pareo.backends.compiled.runtime.thread_pool import split, split_numbered


@jit
def add(out: Any, a: Any, number: float) -> None:
    for i in range(out.size):
        out[i] = a[i] + number


@jit
def mixed(out: Any, flag: bool, whole: int, single: float, pair: Any, matrix: Any) -> None:
    out[0] = 1.0 if flag else 0.0
    out[1] = whole
    out[2] = single
    out[3] = pair[0] + pair[1]
    out[4] = matrix[1, 2]


@jit
def total(a: Any) -> float:
    return a.sum()


@jit
def is_small(a: Any) -> bool:
    return a[0] < 10


@jit
def refuse_zero(a: Any) -> None:
    if a[0] == 0:
        raise ValueError("zero")


def recorded_phases(work: Any) -> Any:
    """The phases of what some work does, and why it cannot be repeated."""
    with recorded() as active:
        assert active is not None
        work()
    return active.phases, active.refused


def test_calls_are_repeated_on_what_the_arrays_hold_then() -> None:
    a, b, c = np.arange(4.0), np.zeros(4), np.zeros(4)

    def work() -> None:
        add(b, a, 1.0)
        add(c, b, 2.0)

    phases, refused = recorded_phases(work)
    assert (len(phases), refused) == (1, "")
    a[:] = [5, 6, 7, 8]
    assert replay.Replay(phases, (), 2).run() == (replay.DONE, 1)
    np.testing.assert_array_equal(b, [6, 7, 8, 9])
    np.testing.assert_array_equal(c, [8, 9, 10, 11])


def test_arguments_of_every_type_arrive() -> None:
    out, matrix = np.zeros(5), np.arange(12, dtype=np.float32).reshape(4, 3).T

    def work() -> None:
        mixed(out, True, -7, np.float32(0.1), (3, 4), matrix)

    phases, _ = recorded_phases(work)
    expected = out.copy()
    out[:] = -1
    replay.Replay(phases, (), 1).run()
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(out, [1, -7, np.float32(0.1), 7, matrix[1, 2]])


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_split_work_is_done_once_and_in_order(threads: int) -> None:
    """Every phase reads what another thread has written in the one before."""
    count, rounds = 1000, 40
    given, values = np.zeros(count), [np.zeros(count) for _ in range(rounds)]

    def work() -> None:
        before = given
        for now in values:
            turned = before[::-1]
            split(lambda lo, hi, now=now, a=turned: add(now[lo:hi], a[lo:hi], 1.0), count)  # type: ignore[misc]
            before = now

    with Device("compiled", threads=threads):
        phases, refused = recorded_phases(work)
        assert not refused
        assert max(map(len, phases)) == threads
        again = replay.Replay(phases, (), threads)
        for start in range(20):
            given[:] = np.arange(count) + start
            assert again.run()[0] == replay.DONE
            np.testing.assert_array_equal(values[-1], given + rounds)


def test_work_with_buffers_of_workers() -> None:
    sums, out, a = np.zeros((3, 2)), np.zeros(2, np.float32), np.arange(6.0).reshape(3, 2)

    def work() -> None:
        def part(number: int, lo: int, hi: int) -> None:
            fill(sums[number], 0)
            for row in range(lo, hi):
                add(sums[number], a[row], 0.5)

        add_parts(out, sums, split_numbered(part, 3))

    with Device("compiled", threads=3):
        phases, _ = recorded_phases(work)
        a += 1
        replay.Replay(phases, (), 3).run()
    np.testing.assert_array_equal(out, a.sum(axis=0) + 1.5)


def test_another_truth_ends_the_run_before_what_follows() -> None:
    a, b = np.zeros(1), np.zeros(1)

    def work() -> None:
        add(b, b, 1.0)
        assert holds(is_small, a)
        add(b, b, 10.0)

    again = replay.Replay(recorded_phases(work)[0], (), 1)
    b[0] = 0
    assert again.run()[0] == replay.DONE
    assert b[0] == 11
    a[0] = 99
    assert again.run()[0] == replay.DIFFERENT
    assert b[0] == 12


@pytest.mark.parametrize("threads", [1, 2])
def test_an_exception_ends_the_run(threads: int) -> None:
    a = np.ones((2, 1))

    def work() -> None:
        split(lambda lo, hi: [refuse_zero(a[row]) for row in range(lo, hi)], 2)

    with Device("compiled", threads=threads):
        again = replay.Replay(recorded_phases(work)[0], (), threads)
        assert again.run()[0] == replay.DONE
        a[1] = 0
        assert again.run()[0] == replay.FAILED
        a[1] = 1
        assert again.run()[0] == replay.DONE


def test_questions_are_not_recorded() -> None:
    a = np.ones(3)
    assert recorded_phases(lambda: total(a)) == ([], "")


def test_what_no_word_stands_for_is_refused() -> None:
    @jit
    def takes_a_text(out: Any, name: str) -> None:
        out[0] = len(name)

    out = np.zeros(1)
    phases, refused = recorded_phases(lambda: takes_a_text(out, "four"))
    assert (phases, out[0]) == ([], 4)
    assert "takes_a_text has an argument of type" in refused


def test_one_thread_records_at_a_time_and_others_compute_as_usual() -> None:
    a, b, seen = np.zeros(3), np.zeros(3), []

    def other() -> None:
        with recorded() as active:
            seen.append(active)
        add(b, a, 3.0)

    with recorded() as active:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        add(a, a, 1.0)
    assert active is not None
    assert seen == [None]
    assert [len(part) for phase in active.phases for part in phase] == [1]
    np.testing.assert_array_equal(b, 3.0)
    assert recording.active() is None


def test_functions_made_while_recording_are_recorded() -> None:
    a = np.zeros(2)

    def work() -> None:
        @jit
        def set_one(out: Any) -> None:
            out[:] = 1

        set_one(a)
        set_one(a)

    phases, refused = recorded_phases(work)
    assert not refused
    a[:] = 0
    replay.Replay(phases, (), 1).run()
    np.testing.assert_array_equal(a, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_process_repeats_what_its_parent_recorded() -> None:
    a = np.zeros(2000)

    def work() -> None:
        split(lambda lo, hi: add(a[lo:hi], a[lo:hi], 1.0), a.size)

    with Device("compiled", threads=2):
        again = replay.Replay(recorded_phases(work)[0], (), 2)
        again.run()
        child = os.fork()
        if child == 0:
            try:
                ended, _ = again.run()
                os._exit(int(ended != replay.DONE or (a != 3).any()))
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


LAYOUTS = {
    "dense": lambda a: a,
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "every other": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "backwards": lambda a: np.ascontiguousarray(a[..., ::-1])[..., ::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (2, 3, 4), (2, 3, 4, 5), (2, 0, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_a_copy_is_numpys(layout: str, shape: tuple[int, ...], dtype: str) -> None:
    a = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    given = LAYOUTS[layout](a) if shape else a
    for into in (
        np.empty_like(a),
        LAYOUTS[layout](np.empty_like(a)) if shape else np.empty_like(a),
    ):
        copy(into, given)
        np.testing.assert_array_equal(into, a)


@pytest.mark.parametrize("small", [(), (1,), (4, 1, 1), (1, 3, 1, 1), (2, 1, 5, 4), (4,)])
def test_a_copy_repeats_what_broadcasts(small: tuple[int, ...]) -> None:
    shape = (2, 3, 5, 4) if small != (4, 1, 1) else (2, 4, 5, 4)
    a, out = np.random.default_rng(0).standard_normal(small), np.empty(shape)
    copy(out, a)
    np.testing.assert_array_equal(out, np.broadcast_to(a, shape))


def test_an_array_with_gaps_is_not_filled_in_a_copy() -> None:
    with pytest.raises(ValueError, match="not contiguous"):
        fill(np.zeros((4, 4))[:, ::2], 1)
