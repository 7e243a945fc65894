"""Loops over flat arrays (`loops`), shared out among threads that need no Python for it.

Everyone takes one stretch after another, so whoever comes late does less. That gives the same bits
as any other split, since each element stands for itself.
"""

import functools
from typing import Any

import numpy as np

from pareo.backends.compiled.backend import GRAIN
from pareo.backends.compiled.kernels import elementwise_loops
from pareo.backends.compiled.runtime import thread_handoff
from pareo.backends.compiled.runtime.generated import generated
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.thread_pool import give_back, taken, workers

ALIGNED = 64  # elements, of which a stretch has a multiple: vectors across cache lines are slow
STRETCHES = 2  # for each thread: with more, memory is read in too many places at once
_NATIVE = """\
from numba import carray
from pareo.backends.compiled.kernels import elementwise_loops as loops
from pareo.backends.compiled.runtime.jit import native

@native("{kind}")
def address(places, low, high):
    loops.{name}({arrays})
"""


def run(name: str, out: Any, first: Any, *rest: Any, least: int = GRAIN) -> None:
    """A loop on arrays of one dtype and size, all contiguous; the last may be a single number.

    `out` may lie where `first` does, but not where another does. Each thread gets `least` elements
    or more, by default as many cheap ones as are worth handing over.
    """
    arrays = tuple([array.reshape(-1) for array in (out, first, *rest)])
    if same_place(arrays[0], arrays[1]):
        name, arrays = f"{name}_here", arrays[1:]
    threads = min(workers(), out.size // least)
    if threads <= 1:
        getattr(elementwise_loops, name)(*arrays)
        return
    stretch = -(-out.size // (STRETCHES * threads))
    stretch += -stretch % ALIGNED
    words = np.empty(thread_handoff.PLACES + len(arrays), np.int64)
    function = _native(name, out.dtype.char, len(arrays), arrays[-1].size == 1)
    job = thread_handoff.plan(words, function, stretch, arrays)
    helpers = [taken() for _ in range(threads - 1)]
    for worker in helpers:
        worker.help(job, (words, arrays))
    thread_handoff.work_at(job)
    for worker in helpers:
        worker.done()
        give_back(worker)


@jit
def same_place(a: Any, b: Any) -> bool:
    """Whether two flat arrays begin at one address; asking NumPy takes longer."""
    return bool(a.ctypes.data == b.ctypes.data)


@functools.cache
def _native(name: str, character: str, arrays: int, number: bool) -> int:
    """The address of a loop as a function of C."""
    parts = [f"carray(places[{place}], high)[low:]" for place in range(arrays)]
    if number:
        parts[-1] = f"carray(places[{arrays - 1}], 1)"
    kind = np.dtype(character).name
    source = _NATIVE.format(kind=kind, name=name, arrays=", ".join(parts))
    return int(generated(source).address)
