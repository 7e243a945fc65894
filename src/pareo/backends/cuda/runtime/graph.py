"""Work that is captured as one CUDA graph when it is repeated on the same arrays."""

import ctypes
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress

from pareo.array import Array
from pareo.backends.cuda.runtime import toolkit
from pareo.backends.cuda.runtime.cupy_module import cupy
from pareo.errors import DeviceError

BY_PRIORITY = 8  # CU_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY


class Graph:
    """A captured CUDA graph, ready to launch.

    CuPy's own graphs lose the priorities of the streams that they were captured from.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        """Capture the work without executing it."""
        runtime = cupy.cuda.runtime
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            try:
                work()
            except BaseException:  # the caller sees this error, not the capture's
                with suppress(runtime.CUDARuntimeError):
                    runtime.graphDestroy(runtime.streamEndCapture(stream.ptr))
                raise
            captured = runtime.streamEndCapture(stream.ptr)
        made = ctypes.c_void_p()
        status = toolkit.driver().cuGraphInstantiateWithFlags(
            ctypes.byref(made), ctypes.c_void_p(captured), ctypes.c_ulonglong(BY_PRIORITY)
        )
        runtime.graphDestroy(captured)
        if status:
            raise DeviceError(f"CUDA could not instantiate a graph: error {status}")
        self._made = made.value
        weakref.finalize(self, runtime.graphExecDestroy, self._made)

    def launch(self) -> None:
        """Launch the graph on the current stream."""
        cupy.cuda.runtime.graphLaunch(self._made, cupy.cuda.get_current_stream().ptr)


class Replay:
    """Runs work launch by launch at first, then, for the same arrays, as one graph.

    The second call with the same arrays captures the graph; later calls only launch it. Memory that
    the work allocates comes from a pool that belongs to the graph, so that no other array is given
    memory that the graph writes to.
    """

    def __init__(self) -> None:
        self._pool = cupy.cuda.MemoryPool()
        self._last: tuple[int, ...] | None = None
        self._graph: Graph | None = None
        self.captured: tuple[int, ...] | None = (
            None  # the addresses that the graph was captured for
        )

    def __call__(self, work: Callable[[], None], arrays: Sequence[Array]) -> None:
        """Do the work, which must be the same at each call for the same arrays."""
        key = tuple(array.data.ptr for array in arrays)
        if self._graph is not None and key == self.captured:
            self._graph.launch()
        elif key != self._last:
            self._last = key
            self._do(work)
        else:
            self._graph = Graph(lambda: self._do(work))
            self.captured = key
            self._graph.launch()

    @property
    def kept_bytes(self) -> int:
        """Bytes of GPU memory that its pool holds."""
        return int(self._pool.total_bytes())

    def _do(self, work: Callable[[], None]) -> None:
        with cupy.cuda.using_allocator(self._pool.malloc):
            work()
