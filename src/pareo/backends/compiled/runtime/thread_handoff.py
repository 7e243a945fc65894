"""Handing work to a thread and back in a few microseconds: a word that both look at for a while.

Waking a thread takes the system 20 microseconds and more. So a worker that has nothing to do asks
for some time, without Python's lock and lending its core to whoever else wants it, and only then
goes to sleep. Whoever gave it work and is done first takes back what was not begun.

A worker's box is four words, each in a cache line of its own: the number of the task that waits
for it, or none; the number of the last task that it has done; whether it sleeps; the job that the
task is a part of. A job needs no Python: it is a function of C on elements of arrays, of which all
who work at it take one stretch after another. A task without a job is left to Python.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types

from pareo.backends.compiled.runtime.jit import emits, jit

LINE = 128  # bytes: some processors fetch two lines of 64 at once
DONE, ASLEEP, JOB = LINE, 2 * LINE, 3 * LINE  # of a box, behind the task that waits
COUNT, STRETCH, FUNCTION, PLACES = 16, 17, 18, 19  # of a job, in words, behind the next element
SLEEP, WORK = 0, 1  # what a worker is to do
# How often a worker asks before it sleeps: 100 microseconds or so, twice what waking would cost
PATIENCE = 300
# How often one asks for an end that is near, then also lends one's core, then rests in between
EAGER, LENDING, REST = 1000, 2000, 50


def new_box() -> tuple[Any, int]:
    """A box with no task in it: the array that keeps it alive, and its address."""
    words = np.zeros(5 * LINE // 8, np.int64)
    return words, words.ctypes.data + -words.ctypes.data % LINE


@jit
def next_thing(box: int, done: int) -> int:
    """Tell that a task is done, if one is, and do jobs as they come.

    WORK where a task for Python came and is ours; SLEEP where none has come for long.
    """
    if done:
        _set(box + DONE, done)
    while True:
        asked = 0
        while asked < PATIENCE:
            task = _swap(box, 0) if _get(box) else 0
            if task:
                job = _get(box + JOB)
                if not job:
                    return WORK
                work_at(job)
                _set(box + DONE, task)
                asked = 0
            asked += 1
            _lend_core()
        _set(box + ASLEEP, 1)
        # A task that came before we said so was given by somebody who does not know that we sleep.
        if not _get(box) or not _swap(box + ASLEEP, 0):
            return SLEEP


@jit
def plan(job: Any, function: int, stretch: int, arrays: Any) -> int:
    """Write down a job on flat arrays, the first of which says how many elements; its address."""
    job[0] = 0
    job[COUNT] = arrays[0].size
    job[STRETCH] = stretch
    job[FUNCTION] = function
    for number, array in enumerate(arrays):
        job[PLACES + number] = array.ctypes.data
    return job.ctypes.data


@jit
def work_at(job: int) -> None:
    """Take one stretch of a job after another, until none is left."""
    count, stretch = _get(job + 8 * COUNT), _get(job + 8 * STRETCH)
    while True:
        low = _advance(job, stretch)
        if low >= count:
            return
        _call(_get(job + 8 * FUNCTION), job + 8 * PLACES, low, min(low + stretch, count))


@jit
def offer(box: int, task: int, job: int) -> int:
    """Offer a task, of a job or of none; whether its worker sleeps and must be woken."""
    _set(box + JOB, job)
    _set(box, task)
    return _swap(box + ASLEEP, 0)


@jit
def finish(box: int, task: int) -> bool:
    """Wait until a task is done, or take it back; False where its worker had not begun it."""
    if _swap(box, 0):
        return False
    asked = 0
    while _get(box + DONE) < task:
        asked += 1
        if asked > LENDING:
            _rest()
        elif asked > EAGER:
            _lend_core()
    return True


def _place(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


@emits
def _get(typingctx, address):  # type: ignore[no-untyped-def]
    """The word at an address, as all threads see it."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.load_atomic(_place(builder, given[0]), "seq_cst", align=8)

    return types.int64(types.int64), generate


@emits
def _set(typingctx, address, value):  # type: ignore[no-untyped-def]
    """Write a word that other threads look at."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        builder.store_atomic(given[1], _place(builder, given[0]), "seq_cst", align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@emits
def _swap(typingctx, address, value):  # type: ignore[no-untyped-def]
    """Write a word and give what was there, with nobody in between."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.atomic_rmw("xchg", _place(builder, given[0]), given[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@emits
def _advance(typingctx, address, by):  # type: ignore[no-untyped-def]
    """Add to a word and give what was there, with nobody in between."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.atomic_rmw("add", _place(builder, given[0]), given[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@emits
def _call(typingctx, function, places, low, high):  # type: ignore[no-untyped-def]
    """Call the function of C at an address (`jit.native`)."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        i64 = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [i64.as_pointer(), i64, i64])
        function, places, low, high = given
        builder.call(
            builder.inttoptr(function, kind.as_pointer()), [_place(builder, places), low, high]
        )
        return context.get_dummy_value()

    whole = types.int64
    return types.void(whole, whole, whole, whole), generate


@emits
def _lend_core(typingctx):  # type: ignore[no-untyped-def]
    """Let another thread have this core, if one wants it."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        call_system(builder, "sched_yield")
        return context.get_dummy_value()

    return types.void(), generate


@emits
def _rest(typingctx):  # type: ignore[no-untyped-def]
    """Sleep for some microseconds."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        call_system(builder, "usleep", REST)
        return context.get_dummy_value()

    return types.void(), generate


def call_system(builder: Any, name: str, *given: int) -> None:
    """Write a call of a function of the C library, which takes and gives 32 bits."""
    i32 = ir.IntType(32)
    kind = ir.FunctionType(i32, [i32] * len(given))
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(function, [i32(number) for number in given])
