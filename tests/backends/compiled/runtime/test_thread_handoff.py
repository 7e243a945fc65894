"""Work handed to threads and back: nothing lost or done twice, whoever sleeps, comes late or fails.

Elementwise loops are shared out without Python; everything else is a task for Python.
"""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pareo import Device, op
from pareo.backends.compiled.backend import GRAIN
from pareo.backends.compiled.runtime import thread_handoff
from pareo.backends.compiled.runtime.thread_pool import give_back, split, taken

BINARY = {"add": np.add, "sub": np.subtract, "hadamard": np.multiply, "div": np.divide}
SIZES = st.sampled_from([1, 2, 2 * GRAIN - 1, 2 * GRAIN, 2 * GRAIN + 1, 500_003])


def numbers(size, dtype, seed):
    return np.random.default_rng(seed).standard_normal(size).astype(dtype)


@given(
    st.sampled_from(sorted(BINARY)),
    SIZES,
    st.sampled_from(["float32", "float64"]),
    st.integers(1, 5),
    st.sampled_from(["new", "first", "second", "both"]),
)
def test_binary_loops_are_numpys_to_the_last_bit(name, size, dtype, threads, where):
    a, b = numbers((size, 1), dtype, 1), numbers((size, 1), dtype, 2)
    b = a if where == "both" else b
    expected = BINARY[name](a, b)
    out = {"new": np.empty_like(a), "second": b}.get(where, a)
    with Device("compiled", threads=threads):
        assert getattr(op, name)(a, b, out=out) is out
    np.testing.assert_array_equal(out, expected)


@given(SIZES, st.integers(1, 4), st.booleans())
def test_scaling_is_numpys_to_the_last_bit(size, threads, in_place):
    a = numbers(size, "float32", 3)
    expected = a * np.float32(0.1)
    with Device("compiled", threads=threads):
        found = op.scale(0.1, a, out=a if in_place else None)
    np.testing.assert_array_equal(found, expected)


@given(st.integers(1, 4), st.sampled_from([(1, 50_000), (3, 1), (3, 50_000), ()]))
def test_operands_that_broadcast_or_are_not_contiguous(threads, shape):
    a = numbers((50_000, 3), "float32", 4).T
    b = numbers(shape, "float32", 5)
    with Device("compiled", threads=threads):
        np.testing.assert_array_equal(op.add(a, b), a + b)
        np.testing.assert_array_equal(op.sub(b, a), b - a)


def test_infinities_and_nan_are_as_ieee_has_them():
    a = np.resize(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0], np.float32), 600_000)
    b = np.repeat(a[:6], 100_000)
    with Device("compiled", threads=2), np.errstate(all="ignore"):
        for name, exact in BINARY.items():
            found, expected = getattr(op, name)(a, b), exact(a, b)
            np.testing.assert_array_equal(found, expected)
            zeros = expected == 0
            np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))


def test_a_worker_that_sleeps_is_woken_and_then_asks_for_a_while():
    worker = taken()
    ran = []
    worker.give(lambda: ran.append(1))
    while not ran:
        time.sleep(0.001)
    assert worker.done()
    asleep = (thread_handoff.ASLEEP + worker._box - worker._words.ctypes.data) // 8
    while not worker._words[asleep]:
        time.sleep(0.001)
    worker.give(lambda: ran.append(2))
    while len(ran) < 2:
        time.sleep(0.001)
    assert worker.done()
    give_back(worker)


def test_a_task_that_was_not_begun_is_taken_back_and_never_run():
    worker, busy, free, ran = taken(), threading.Event(), threading.Event(), []
    worker.give(lambda: (ran.append(1), busy.set(), free.wait()))
    busy.wait()
    second = worker._given + 1
    thread_handoff.offer(worker._box, second, 0)  # it is at another task, so nobody begins this one
    assert not thread_handoff.finish(worker._box, second)
    free.set()
    assert worker.done()
    worker.give(lambda: ran.append(2))
    while len(ran) < 2:
        time.sleep(0.001)
    assert worker.done()
    assert ran == [1, 2]
    give_back(worker)


def test_pieces_that_nobody_came_for_are_run_by_the_caller():
    done = []
    with Device("compiled", threads=3):
        for _ in range(2000):  # over at once: often before a worker has begun
            split(lambda lo, hi: done.append((lo, hi)), 6)
    assert len(done) == 6000
    assert [done.count(piece) for piece in ((0, 2), (2, 4), (4, 6))] == [2000] * 3


@pytest.mark.parametrize("pause", [0, 0.0005])
def test_jobs_and_tasks_in_turn_by_many_callers(pause):
    """Callers at once, workers awake or asleep, jobs and tasks mixed: every sum is right."""
    wrong = []

    def caller(seed):
        a = numbers(200_000, "float32", seed)
        with Device("compiled", threads=3):
            for turn in range(100):
                if not np.array_equal(op.add(a, a), 2 * a):
                    wrong.append(("add", turn))
                parts = []
                split(lambda lo, hi, parts=parts: parts.append(a[lo:hi].sum(dtype="f8")), a.size)
                if abs(sum(parts) - a.sum(dtype="f8")) > 1e-9:
                    wrong.append(("sum", turn))
                time.sleep(pause)

    callers = [threading.Thread(target=caller, args=(seed,)) for seed in range(4)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert not wrong


def test_a_failing_task_leaves_its_worker_fit_for_more():
    def fail(lo, hi):
        if lo:
            raise ValueError("on purpose")
        time.sleep(0.02)  # so that the worker begins

    with Device("compiled", threads=2):
        for _ in range(3):
            with pytest.raises(ValueError, match="on purpose"):
                split(fail, 2)
        done = []
        split(lambda lo, hi: done.append((lo, hi)), 2)
    assert sorted(done) == [(0, 1), (1, 2)]


ENDS = """
import time, numpy as np
from pareo import Device, op
with Device("compiled", threads=3):
    op.add(np.ones(200_000), np.ones(200_000))
    time.sleep({pause})
"""


@pytest.mark.parametrize("pause", [0, 0.05])
def test_a_process_ends_whether_its_workers_are_awake_or_asleep(pause):
    words = [sys.executable, "-c", ENDS.format(pause=pause)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_gets_workers_of_its_own():
    code = """
import os, numpy as np
from pareo import Device, op
a = np.ones(200_000)
with Device("compiled", threads=3):
    op.add(a, a)
    child = os.fork()
    if not child:
        os._exit(int((op.add(a, a) != 2).any()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    words = [sys.executable, "-W", "ignore", "-c", code]
    assert subprocess.run(words, timeout=120).returncode == 0
