"""Captures a program's calls on several streams, so that independent calls run at the same time.

Most kernels leave part of the GPU idle: small ones most of it, and of the large ones some wait for
memory while others compute.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pareo.array import Array
from pareo.backends.cuda.runtime import memory
from pareo.backends.cuda.runtime.cupy_module import cupy
from pareo.program.kernel import Call
from pareo.program.streams import Access, Placement, assign_streams, dependencies, heights

# A call is urgent when a chain of more calls than this depends on it. Fewer calls depend on the
# gradient of a parameter.
URGENT_HEIGHT = 3
NORMAL, URGENT = 0, 1  # kinds of calls
PRIORITY = (0, -2)  # of the streams of each kind: the lower number goes first
MAX_STREAMS = (2, 8)  # of each kind; with 1 or 4 and with 6 or 10, steps took the same within 3 %
_local = threading.local()


def capturing() -> bool:
    """Whether the current stream is being captured."""
    return bool(cupy.cuda.get_current_stream().is_capturing())


def execute(calls: Sequence[Call], values: list[Array]) -> None:
    """Run the calls on streams that fork from the current one and join it again.

    Each call waits only for the calls whose values or memory it needs.
    """
    before = dependencies([_access(call, values) for call in calls])
    kinds = [URGENT if high > URGENT_HEIGHT else NORMAL for high in heights(before)]
    placements = assign_streams(before, kinds, MAX_STREAMS)
    _local.last_exclusive = None
    try:
        _launch(calls, values, placements, kinds)
    finally:
        _local.last_exclusive = None
        _local.on_streams = False


def _access(call: Call, values: list[Array]) -> Access:
    results = [values[number] for number in call.writes]
    return Access(
        [memory.span(values[number]) for number in call.reads],
        [memory.span(array) for array in (*results, *call.scratch)],
    )


def _launch(
    calls: Sequence[Call],
    values: list[Array],
    placements: Sequence[Placement],
    kinds: Sequence[int],
) -> None:
    main = cupy.cuda.get_current_stream()
    start = main.record()
    streams: dict[int, Any] = {}
    awaited = {one for placement in placements for one in placement.after}
    done: dict[int, Any] = {}
    _local.on_streams = True
    try:
        for number, (call, placement) in enumerate(zip(calls, placements, strict=True)):
            if placement.stream not in streams:
                streams[placement.stream] = _stream(placement.stream, PRIORITY[kinds[number]])
                streams[placement.stream].wait_event(start)
            stream = streams[placement.stream]
            for one in placement.after:
                stream.wait_event(done[one])
            with stream:
                call.run(values)
            if number in awaited:
                done[number] = stream.record()
    finally:  # a capture fails unless every forked stream joins again
        for stream in streams.values():
            main.wait_event(stream.record())


def _stream(stream: int, priority: int) -> Any:
    """One of this thread's streams on the current GPU; they outlive the capture, as it requires."""
    streams = _local.__dict__.setdefault("streams", {})
    key = cupy.cuda.Device().id, stream, priority
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
