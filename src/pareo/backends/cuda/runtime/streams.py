"""A program's steps on several streams, while they are captured: whatever need not wait does not.

Most kernels leave something of the card unused: small ones most of it, and of the large ones some
wait for memory while others compute.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pareo.backends.cuda.runtime import memory
from pareo.backends.cuda.runtime.cupy_module import cupy
from pareo.program.kernel import Call
from pareo.program.streams import Access, Placement, assign_streams, dependencies, heights

LONG = 3  # steps that follow upon one that is urgent; upon gradients of parameters there are less
LEISURE, HASTE = 0, 1  # kinds of steps
PRIORITY = (0, -2)  # of their streams: the lower number goes first
MOST = (2, 8)  # streams of each kind; with 1 or 4, and with 6 or 10, steps were within 3 %
_local = threading.local()


def capturing() -> bool:
    """Whether the stream in use is being captured."""
    return bool(cupy.cuda.get_current_stream().is_capturing())


def perform(steps: Sequence[Call], values: list[Any]) -> None:
    """Do the steps in any order that gives the same, on branches of the stream in use."""
    before = dependencies([_touches(step, values) for step in steps])
    kinds = [HASTE if high > LONG else LEISURE for high in heights(before)]
    turns = assign_streams(before, kinds, MOST)
    _local.product = None
    try:
        _launch(steps, values, turns, kinds)
    finally:
        _local.product = None
        _local.branching = False


def _touches(step: Call, values: list[Any]) -> Access:
    results = [values[number] for number in step.writes]
    return Access(
        [memory.span(values[number]) for number in step.reads],
        [memory.span(array) for array in (*results, *step.scratch)],
    )


def _launch(
    steps: Sequence[Call], values: list[Any], turns: Sequence[Placement], kinds: Sequence[int]
) -> None:
    trunk = cupy.cuda.get_current_stream()
    start = trunk.record()
    streams: dict[int, Any] = {}
    awaited = {one for turn in turns for one in turn.after}
    done: dict[int, Any] = {}
    _local.branching = True
    try:
        for number, (step, turn) in enumerate(zip(steps, turns, strict=True)):
            if turn.stream not in streams:
                streams[turn.stream] = _stream(turn.stream, PRIORITY[kinds[number]])
                streams[turn.stream].wait_event(start)
            stream = streams[turn.stream]
            for one in turn.after:
                stream.wait_event(done[one])
            with stream:
                step.run(values)
            if number in awaited:
                done[number] = stream.record()
    finally:  # a capture whose branches do not all come back fails, and they with it
        for stream in streams.values():
            trunk.wait_event(stream.record())


def _stream(line: int, priority: int) -> Any:
    """One of this thread's streams on the card in use; they stay, as a capture wants them to."""
    streams = _local.__dict__.setdefault("streams", {})
    key = cupy.cuda.Device().id, line, priority
    if key not in streams:
        streams[key] = cupy.cuda.Stream(non_blocking=True, priority=priority)
    return streams[key]


@contextmanager
def alone() -> Iterator[None]:
    """Inside, on any branch, nobody else is: for work in memory that there is only once."""
    if not getattr(_local, "branching", False):
        yield
        return
    stream = cupy.cuda.get_current_stream()
    if _local.product is not None:
        stream.wait_event(_local.product)
    yield
    _local.product = stream.record()
