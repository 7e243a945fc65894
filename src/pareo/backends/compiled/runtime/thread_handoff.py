"""Handing work to a thread within a few microseconds, by words in memory that both sides poll.

To wake a thread takes the system 20 microseconds and more. So a worker without work polls for some
time, without Python's global lock and yielding its core to others, and only then goes to sleep.
When the thread that gave it work is done with its own part, it takes back what was not begun.

A worker's mailbox has five words, each in its own cache line: the number of the task that waits
for it, or 0; the number of the last task that it has done; whether it sleeps; the address of the
job to which the task belongs; and the control register of the thread that offers it (see
`subnormals`), which the worker takes over. A job needs no Python: it is a C function on elements of
arrays, of which all threads take one range after another. A task without a job is done by Python.
"""

import time
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types

from pareo.backends.compiled.runtime.jit import jit, llvm_intrinsic
from pareo.backends.compiled.runtime.subnormals import control, set_control

LINE = 128  # bytes: some processors fetch two lines of 64 at a time
# Offsets in a mailbox, after the task that waits.
DONE, ASLEEP, JOB, CONTROL = LINE, 2 * LINE, 3 * LINE, 4 * LINE
# Offsets in a job, in words, after the next element.
COUNT, LENGTH, FUNCTION, POINTERS = 16, 17, 18, 19
SLEEP, WORK = 0, 1  # what a worker does next
# How often a worker polls before it sleeps: about 100 microseconds, twice the cost of waking it.
POLLS = 300
# A thread that waits for the end of a task polls so often without a pause, then yields its core
# between polls, and after so many polls in all sleeps between them.
BUSY_POLLS, MAX_POLLS, SLEEP_MICROSECONDS = 1000, 2000, 50


def new_mailbox() -> tuple[np.ndarray, int]:
    """An empty mailbox: the array that keeps it alive, and its address."""
    words = np.zeros(6 * LINE // 8, np.int64)
    return words, words.ctypes.data + -words.ctypes.data % LINE


@jit
def next_task(mailbox: int, done: int) -> int:
    """Report that a task is done, if `done` is one, and run jobs as they come.

    Returns WORK if a task for Python has come, which this worker must do, and SLEEP if none has
    come for long.
    """
    if done:
        atomic_store(mailbox + DONE, done)
    while True:
        polls = 0
        while polls < POLLS:
            task = atomic_exchange(mailbox, 0) if atomic_load(mailbox) else 0
            if task:
                job = atomic_load(mailbox + JOB)
                set_control(atomic_load(mailbox + CONTROL))
                if not job:
                    return WORK
                run_job(job)
                atomic_store(mailbox + DONE, task)
                polls = 0
            polls += 1
            yield_core()
        atomic_store(mailbox + ASLEEP, 1)
        # A task that came before that was offered by a thread that does not know of the sleep.
        if not atomic_load(mailbox) or not atomic_exchange(mailbox + ASLEEP, 0):
            return SLEEP


@jit
def write_job(job: np.ndarray, function: int, length: int, arrays: tuple[np.ndarray, ...]) -> int:
    """Write a job on flat arrays of the first one's size into memory; return its address."""
    job[0] = 0
    job[COUNT] = arrays[0].size
    job[LENGTH] = length
    job[FUNCTION] = function
    for number, array in enumerate(arrays):
        job[POINTERS + number] = array.ctypes.data
    return job.ctypes.data


@jit
def run_job(job: int) -> None:
    """Run one range of a job after another, until none is left."""
    count, length = atomic_load(job + 8 * COUNT), atomic_load(job + 8 * LENGTH)
    while True:
        low = atomic_fetch_add(job, length)
        if low >= count:
            return
        _call(atomic_load(job + 8 * FUNCTION), job + 8 * POINTERS, low, min(low + length, count))


@jit
def offer(mailbox: int, task: int, job: int) -> int:
    """Offer a task, with or without a job; return whether its worker sleeps and must be woken."""
    atomic_store(mailbox + JOB, job)
    atomic_store(mailbox + CONTROL, control())
    atomic_store(mailbox, task)
    return atomic_exchange(mailbox + ASLEEP, 0)


@jit
def finish(mailbox: int, task: int) -> bool:
    """Wait until a task is done; if its worker has not begun it, take it back and return False."""
    if atomic_exchange(mailbox, 0):
        return False
    polls = 0
    while atomic_load(mailbox + DONE) < task:
        polls += 1
        if polls > MAX_POLLS:
            _sleep()
        elif polls > BUSY_POLLS:
            yield_core()
    return True


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


@llvm_intrinsic
def atomic_load(typingctx, address):  # type: ignore[no-untyped-def]
    """Load a word atomically."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.load_atomic(_pointer(builder, given[0]), "seq_cst", align=8)

    return types.int64(types.int64), generate


@llvm_intrinsic
def atomic_store(typingctx, address, value):  # type: ignore[no-untyped-def]
    """Store a word atomically."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        builder.store_atomic(given[1], _pointer(builder, given[0]), "seq_cst", align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@llvm_intrinsic
def atomic_exchange(typingctx, address, value):  # type: ignore[no-untyped-def]
    """Exchange a word atomically; return what was there."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.atomic_rmw("xchg", _pointer(builder, given[0]), given[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@llvm_intrinsic
def atomic_fetch_add(typingctx, address, by):  # type: ignore[no-untyped-def]
    """Add to a word atomically; return what was there."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, given[0]), given[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@llvm_intrinsic
def _call(typingctx, function, pointers, low, high):  # type: ignore[no-untyped-def]
    """Call the C function at an address (see `jit.c_function`)."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        i64 = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [i64.as_pointer(), i64, i64])
        function, pointers, low, high = given
        builder.call(
            builder.inttoptr(function, kind.as_pointer()), [_pointer(builder, pointers), low, high]
        )
        return context.get_dummy_value()

    whole = types.int64
    return types.void(whole, whole, whole, whole), generate


@llvm_intrinsic
def call_words(typingctx, thunk, function, words):  # type: ignore[no-untyped-def]
    """Call a thunk with the address of a function and that of its words (see `call_words`)."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        i64 = ir.IntType(64)
        kind = ir.FunctionType(i64, [i64, i64])
        return builder.call(builder.inttoptr(given[0], kind.as_pointer()), given[1:])

    whole = types.int64
    return types.int64(whole, whole, whole), generate


@llvm_intrinsic
def yield_core(typingctx):  # type: ignore[no-untyped-def]
    """Yield this core to another thread, if one is ready."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        call_system(builder, "sched_yield")
        return context.get_dummy_value()

    return types.void(), generate


@llvm_intrinsic
def _sleep(typingctx):  # type: ignore[no-untyped-def]
    """Sleep for some microseconds."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        call_system(builder, "usleep", SLEEP_MICROSECONDS)
        return context.get_dummy_value()

    return types.void(), generate


@llvm_intrinsic
def nanoseconds(typingctx):  # type: ignore[no-untyped-def]
    """The time of the system's monotonic clock, which is Python's `time.perf_counter`."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        i32, i64 = ir.IntType(32), ir.IntType(64)
        kind = ir.FunctionType(i32, [i32, i64.as_pointer()])
        name = "clock_gettime"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        place = cgutils.alloca_once(builder, ir.ArrayType(i64, 2))
        parts = [builder.gep(place, [i32(0), i32(k)]) for k in range(2)]
        builder.call(function, [i32(time.CLOCK_MONOTONIC), parts[0]])
        seconds, rest = (builder.load(part) for part in parts)
        return builder.add(builder.mul(seconds, i64(10**9)), rest)

    return types.int64(), generate


def call_system(builder: Any, name: str, *given: int) -> None:
    """Emit a call of a function of the C library, whose arguments and result have 32 bits."""
    i32 = ir.IntType(32)
    kind = ir.FunctionType(i32, [i32] * len(given))
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(function, [i32(number) for number in given])
