"""The loops of `elementwise_loops` and `activation_loops`, split over threads without Python.

Each thread takes one range of elements after another, so a thread that starts late does less. The
result is bitwise the same as for any other split, since each element is computed by itself.
"""

import functools
from types import ModuleType

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import GRAIN
from pareo.backends.compiled.kernels import activation_loops, elementwise_loops
from pareo.backends.compiled.runtime import recording, thread_handoff
from pareo.backends.compiled.runtime.call_words import range_thunk
from pareo.backends.compiled.runtime.generated_module import generated_module
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import give_back, taken, workers

ALIGNED = 64  # elements: ranges start at multiples, because vectors across cache lines are slow
RANGES = 2  # for each thread: with more, memory is read in too many places at a time
_SOURCE = """\
from numba import carray
from pareo.backends.compiled.kernels import {module}
from pareo.backends.compiled.runtime.jit import c_function

@c_function("{dtype}")
def address(pointers, low, high):
    {module}.{name}({arrays})
"""


def run(name: str, out: Array, first: Array, *rest: Array, min_elements: int = GRAIN) -> None:
    """Run a loop on contiguous arrays of one dtype and size; the last may be a few numbers.

    `out` may be the memory of `first`, but not of another operand. Each thread gets at least
    `min_elements`, by default as many cheap ones as are worth a thread.
    """
    arrays = tuple([array.reshape(-1) for array in (out, first, *rest)])
    if same_address(arrays[0], arrays[1]):
        name, arrays = f"{name}_in_place", arrays[1:]
    threads = min(workers(), out.size // min_elements)
    if threads <= 1:
        getattr(_module(name), name)(*arrays)
        return
    length = -(-out.size // (RANGES * threads))
    length += -length % ALIGNED
    words = np.empty(thread_handoff.POINTERS + len(arrays), np.int64)
    numbers = arrays[-1].size if arrays[-1].size != out.size else 0
    function = _function(name, out.dtype.char, len(arrays), numbers)
    job = thread_handoff.write_job(words, function, length, arrays)
    active = recording.active()
    if active is not None:
        thread_handoff.run_job(job)
        active.add(_ranges(function, words, arrays, length))
        return
    helpers = [taken() for _ in range(threads - 1)]
    for worker in helpers:
        worker.help(job, (words, arrays))
    thread_handoff.run_job(job)
    for worker in helpers:
        worker.done()
        give_back(worker)


def _ranges(function: int, job: Array, arrays: tuple[Array, ...], length: int) -> recording.Phase:
    """The ranges of a job as calls of its function, to be recorded."""
    pointers, thunk = job.ctypes.data + 8 * thread_handoff.POINTERS, range_thunk()
    count, held = arrays[0].size, (job, *arrays)
    return [
        [
            recording.Operation(
                function, thunk, (pointers, low, min(low + length, count)), None, held
            )
        ]
        for low in range(0, count, length)
    ]


@jit
def same_address(a: Array, b: Array) -> bool:
    """Whether two flat arrays start at the same address; asking NumPy takes longer."""
    return bool(a.ctypes.data == b.ctypes.data)


def _module(name: str) -> ModuleType:
    """The module that has a loop."""
    return elementwise_loops if hasattr(elementwise_loops, name) else activation_loops


@functools.cache
def _function(name: str, character: str, count: int, numbers: int) -> int:
    """The address of a loop on `count` arrays, as a C function; the last may be a few numbers."""
    arrays = [f"carray(pointers[{k}], high)[low:]" for k in range(count)]
    if numbers:
        arrays[-1] = f"carray(pointers[{count - 1}], {numbers})"
    source = _SOURCE.format(
        dtype=np.dtype(character).name,
        module=_module(name).__name__.rpartition(".")[2],
        name=name,
        arrays=", ".join(arrays),
    )
    return int(generated_module(source).address)
