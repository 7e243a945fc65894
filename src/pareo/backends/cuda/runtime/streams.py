"""Captures a program's steps on several streams, so that independent steps run at the same time.

Most kernels leave part of the GPU idle: small ones most of it, and of the large ones some wait for
memory while others compute.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pareo.backends.cuda.runtime import memory
from pareo.backends.cuda.runtime.cupy_module import cupy
from pareo.program.kernel import Call
from pareo.program.streams import Access, Placement, assign_streams, dependencies, heights

# A step is urgent when a chain of more steps than this depends on it. Fewer steps depend on the
# gradient of a parameter.
URGENT_HEIGHT = 3
NORMAL, URGENT = 0, 1  # kinds of steps
PRIORITY = (0, -2)  # of the streams of each kind: the lower number goes first
MAX_STREAMS = (2, 8)  # of each kind; with 1 or 4 and with 6 or 10, steps took the same within 3 %
_local = threading.local()


def capturing() -> bool:
    """Whether the current stream is being captured."""
    return bool(cupy.cuda.get_current_stream().is_capturing())


def perform(steps: Sequence[Call], values: list[Any]) -> None:
    """Run the steps on streams that fork from the current one and join it again.

    Each step waits only for the steps whose values or memory it needs.
    """
    before = dependencies([_touches(step, values) for step in steps])
    kinds = [URGENT if high > URGENT_HEIGHT else NORMAL for high in heights(before)]
    turns = assign_streams(before, kinds, MAX_STREAMS)
    _local.last_exclusive = None
    try:
        _launch(steps, values, turns, kinds)
    finally:
        _local.last_exclusive = None
        _local.on_streams = False


def _touches(step: Call, values: list[Any]) -> Access:
    results = [values[number] for number in step.writes]
    return Access(
        [memory.span(values[number]) for number in step.reads],
        [memory.span(array) for array in (*results, *step.scratch)],
    )


def _launch(
    steps: Sequence[Call], values: list[Any], turns: Sequence[Placement], kinds: Sequence[int]
) -> None:
    main = cupy.cuda.get_current_stream()
    start = main.record()
    streams: dict[int, Any] = {}
    awaited = {one for turn in turns for one in turn.after}
    done: dict[int, Any] = {}
    _local.on_streams = True
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
    finally:  # a capture fails unless every forked stream joins again
        for stream in streams.values():
            main.wait_event(stream.record())


def _stream(line: int, priority: int) -> Any:
    """One of this thread's streams on the current GPU; they outlive the capture, as it requires."""
    streams = _local.__dict__.setdefault("streams", {})
    key = cupy.cuda.Device().id, line, priority
    if key not in streams:
        streams[key] = cupy.cuda.Stream(non_blocking=True, priority=priority)
    return streams[key]


@contextmanager
def exclusive() -> Iterator[None]:
    """Never run the body on two streams at the same time: for work in a common workspace."""
    if not getattr(_local, "on_streams", False):
        yield
        return
    stream = cupy.cuda.get_current_stream()
    if _local.last_exclusive is not None:
        stream.wait_event(_local.last_exclusive)
    yield
    _local.last_exclusive = stream.record()
