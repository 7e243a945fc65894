"""Work that is captured as one CUDA graph when it comes again with the same arrays."""

from collections.abc import Callable, Sequence
from typing import Any

from pareo.backends.cuda.cards import cupy


class Replay:
    """Runs work launch by launch at first, then, for the same arrays, as one graph.

    The second call for the same arrays captures; from the third on the graph alone is launched.
    Whatever the work allocates on its way comes from a pool of its own, which lives as long as the
    graph does, so that nobody else is given memory that the graph writes to.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._pool = cupy.cuda.MemoryPool()
        self._last: tuple[int, ...] | None = None
        self._captured: tuple[int, ...] | None = None
        self._graph: Any = None

    def __call__(self, arrays: Sequence[Any]) -> None:
        key = tuple(array.data.ptr for array in arrays)
        if key == self._captured:
            self._graph.launch()
            return
        if key != self._last:
            self._last = key
            self._run()
            return
        self._capture(key)
        self._graph.launch()

    def _run(self) -> None:
        with cupy.cuda.using_allocator(self._pool.malloc):
            self._work()

    def _capture(self, key: tuple[int, ...]) -> None:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            try:
                self._run()
            finally:
                graph = stream.end_capture()
        self._graph, self._captured = graph, key
