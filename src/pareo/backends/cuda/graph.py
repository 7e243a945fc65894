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

    def __init__(self) -> None:
        self._pool = cupy.cuda.MemoryPool()
        self._last: tuple[int, ...] | None = None
        self._graph: Any = None
        self.captured: tuple[int, ...] | None = None  # the addresses that the graph is for

    def __call__(self, work: Callable[[], None], arrays: Sequence[Any]) -> None:
        """Do the work, which must be the same at each call for the same arrays."""
        key = tuple(array.data.ptr for array in arrays)
        if key == self.captured:
            self._graph.launch()
        elif key != self._last:
            self._last = key
            self._do(work)
        else:
            self._capture(work)
            self.captured = key
            self._graph.launch()

    def _do(self, work: Callable[[], None]) -> None:
        with cupy.cuda.using_allocator(self._pool.malloc):
            work()

    def _capture(self, work: Callable[[], None]) -> None:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            try:
                self._do(work)
            finally:
                self._graph = stream.end_capture()
