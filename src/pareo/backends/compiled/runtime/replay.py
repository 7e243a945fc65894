"""Recorded calls of compiled functions, repeated by all threads without Python.

The threads meet before and after work that is split. Between, the first one runs what is not split,
and the others poll. Each begins with its own part of the work, the same every time, and then takes
parts that no other thread has begun.
"""

from collections.abc import Sequence

import numpy as np
from numba import carray

from pareo.backends.compiled.runtime import thread_handoff
from pareo.backends.compiled.runtime.jit import c_function, jit
from pareo.backends.compiled.runtime.recording import Phase
from pareo.backends.compiled.runtime.thread_handoff import (
    LINE,
    atomic_exchange,
    atomic_fetch_add,
    atomic_load,
    atomic_store,
    call_words,
    nanoseconds,
    yield_core,
)
from pareo.backends.compiled.runtime.thread_pool import give_back, taken

POLLS = 2000  # of a thread that waits, before it yields its core between them
END = 1 << 62
DONE, DIFFERENT, FAILED = 0, 1, 2  # how a run ended
PUBLISHED, ENDED = 0, LINE // 8  # words of the state: the last phase that was begun; how it ended
NO_TIMES = np.zeros(0, np.int64)


class Replay:
    """Recorded phases, ready to run.

    All arrays must be where they were. `held` keeps those alive that nobody else does, and machine
    code.
    """

    def __init__(self, phases: Sequence[Phase], held: Sequence[object], threads: int) -> None:
        self._held = held
        parts = [part for phase in phases for part in phase]
        operations = [operation for part in parts for operation in part]
        self._words = np.array([word for o in operations for word in o.words], np.int64)
        at = self._words.ctypes.data + 8 * np.cumsum([0, *(len(o.words) for o in operations)])
        self._calls = np.array(
            [
                (o.thunk, o.function, place, -1 if o.expected is None else o.expected)
                for o, place in zip(operations, at.tolist(), strict=False)
            ],
            np.int64,
        ).reshape(-1, 4)
        self._parts = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        self._phases = np.cumsum([0, *map(len, phases)], dtype=np.int64)
        self._claims = np.zeros(len(parts), np.int64)
        self._left = np.zeros(len(phases), np.int64)
        self._state = np.zeros(2 * LINE // 8, np.int64)
        most = max(map(len, phases), default=1)
        self._helpers = min(threads, most) - 1
        self._tables = (
            self._state, self._phases, self._parts, self._calls.reshape(-1), self._claims,
            self._left,
        )  # fmt: skip
        self._job = np.zeros(thread_handoff.POINTERS + len(self._tables), np.int64)

    @property
    def nbytes(self) -> int:
        """The bytes of the tables."""
        return sum(table.nbytes for table in (*self._tables, self._words))

    def run(self, times: np.ndarray = NO_TIMES, first: int = 0) -> tuple[int, int]:
        """Repeat the calls from a phase on; how that ended, and the number of phases up to there.

        It is DONE, FAILED, or DIFFERENT if a call returned another truth than when it was recorded.
        `times`, one for each phase and one more, are the nanoseconds of a monotonic clock before
        and after them.
        """
        self._job[thread_handoff.POINTERS :] = [table.ctypes.data for table in self._tables]
        job = _prepared(self._job, self._helpers, _HELP, *self._tables)
        helpers = [taken() for _ in range(self._helpers)]
        try:
            for worker in helpers:
                worker.help(job, self)
            ended, phase = _lead(*self._tables, times, first)
        finally:
            _dismiss(self._state)  # they wait for more if Ctrl-C came before the end
            for worker in helpers:
                worker.done()
                give_back(worker)
        return int(ended), int(phase)


@jit
def _prepared(
    job: np.ndarray, helpers: int, function: int, state: np.ndarray, phases: np.ndarray,
    parts: np.ndarray, calls: np.ndarray, claims: np.ndarray, left: np.ndarray,
) -> int:  # fmt: skip
    """Set everything to the beginning; the address of the job that helpers do."""
    claims[:] = 0
    for phase in range(left.size):
        left[phase] = phases[phase + 1] - phases[phase]
    state[:] = 0
    job[0] = 0
    job[thread_handoff.COUNT] = helpers
    job[thread_handoff.LENGTH] = 1
    job[thread_handoff.FUNCTION] = function
    return job.ctypes.data


@jit
def _dismiss(state: np.ndarray) -> None:
    """Tell all helpers that no phase follows."""
    atomic_store(state.ctypes.data + 8 * PUBLISHED, END)


@jit
def _run_part(part: int, parts: np.ndarray, calls: np.ndarray) -> int:
    """Make the calls of a part, up to one that fails or returns another truth."""
    for call in range(parts[part], parts[part + 1]):
        at = 4 * call
        truth = call_words(calls[at], calls[at + 1], calls[at + 2])
        if truth < 0:
            return FAILED
        if calls[at + 3] >= 0 and truth != calls[at + 3]:
            return DIFFERENT
    return DONE


@jit
def _share(
    own: int, phase: int, state: np.ndarray, phases: np.ndarray, parts: np.ndarray,
    calls: np.ndarray, claims: np.ndarray, left: np.ndarray,
) -> None:  # fmt: skip
    """Run this thread's part of a phase, then those that no thread has begun."""
    first, count = phases[phase], phases[phase + 1] - phases[phase]
    for k in range(count):
        part = first + (own + k) % count
        claim = claims.ctypes.data + 8 * part
        if not atomic_load(claim) and not atomic_exchange(claim, 1):
            ended = _run_part(part, parts, calls)
            if ended != DONE:
                atomic_store(state.ctypes.data + 8 * ENDED, ended)
            atomic_fetch_add(left.ctypes.data + 8 * phase, -1)


@jit
def _lead(
    state: np.ndarray, phases: np.ndarray, parts: np.ndarray, calls: np.ndarray,
    claims: np.ndarray, left: np.ndarray, times: np.ndarray, first: int,
) -> tuple[int, int]:  # fmt: skip
    """Run all phases from one on, with the help of the others."""
    published, ended = state.ctypes.data + 8 * PUBLISHED, state.ctypes.data + 8 * ENDED
    phase, how = first, DONE
    if times.size:
        times[phase] = nanoseconds()
    while phase < left.size and how == DONE:
        if phases[phase + 1] - phases[phase] == 1:
            how = _run_part(phases[phase], parts, calls)
        else:
            atomic_store(published, phase + 1)
            _share(0, phase, state, phases, parts, calls, claims, left)
            polls, place = 0, left.ctypes.data + 8 * phase
            while atomic_load(place) > 0:
                polls += 1
                if polls > POLLS:
                    yield_core()
            how = atomic_load(ended)
        phase += 1
        if times.size:
            times[phase] = nanoseconds()
    return how, phase


@c_function("int64")
def _HELP(pointers, low, high):  # type: ignore[no-untyped-def]
    """Help with the phases as they begin; `low` is the number of the helper."""
    state = carray(pointers[0], 2 * LINE // 8)
    phase = 0
    polls = 0
    while True:
        now = atomic_load(state.ctypes.data)
        if now == END:
            return
        if now > phase:
            phase, polls = now, 0
            phases = carray(pointers[1], phase + 1)
            parts = carray(pointers[2], phases[phase] + 1)
            calls = carray(pointers[3], 4 * parts[phases[phase]])
            claims = carray(pointers[4], phases[phase])
            left = carray(pointers[5], phase)
            _share(low + 1, phase - 1, state, phases, parts, calls, claims, left)
        else:
            polls += 1
            if polls > POLLS:
                yield_core()
