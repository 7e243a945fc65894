"""Every kernel and copy on a GPU, as CUPTI records it: one instrument for all frameworks.

A recorder is made before a framework starts, so that graphs which it captures are known, too. While
it is off, nothing is recorded and a step is not slowed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pareo.errors import DeviceError
from pareo.lab.machine.kernel_names import readable

BUFFER = 8 << 20  # bytes: CUPTI asks for another when one is full
COPIES = {1: "host to device", 2: "device to host", 8: "device to device"}


@dataclass(frozen=True)
class Launch:
    """One kernel or copy on the GPU; start and end in seconds, `mark` as given to `marked`.

    node: its node in a CUDA graph, numbered in the order of capture; 0 outside of a graph.
    """

    name: str
    start: float
    end: float
    stream: int
    mark: int | None = None
    node: int = 0


def missing() -> str | None:
    """What to install where CUPTI cannot be used; None where it can."""
    try:
        from cupti import cupti  # noqa: F401
    except ImportError as error:
        return f"CUPTI is not installed ({error}): pip install 'pareo[cuda]'"
    return None


class Recorder:
    """CUPTI's activity records of this process, while it is on."""

    def __init__(self) -> None:
        try:
            from cupti import cupti
        except ImportError:
            raise DeviceError(str(missing())) from None
        self._cupti: Any = cupti
        kinds = cupti.ActivityKind
        self._work = (kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET)
        self._marks = (kinds.EXTERNAL_CORRELATION, kinds.RUNTIME, kinds.DRIVER)
        self._launches: list[tuple[str, int, int, int, int, int]] = []
        self._marked: dict[int, int] = {}
        cupti.activity_register_callbacks(lambda: (BUFFER, 0), self._completed)

    @contextmanager
    def recording(self, marks: bool = False) -> Iterator[list[Launch]]:
        """Record what runs inside; the list is filled at the end, in the order of starts.

        The caller ensures that the GPU is idle when the block begins and ends.
        """
        found: list[Launch] = []
        self._launches, self._marked = [], {}
        kinds = self._work + (self._marks if marks else ())
        for kind in kinds:
            self._cupti.activity_enable(kind)
        try:
            yield found
        finally:
            self._cupti.activity_flush_all(1)
            for kind in kinds:
                self._cupti.activity_disable(kind)
        self._launches.sort(key=lambda launch: launch[1])
        # Nanoseconds since 1970 are too many digits for a float of seconds.
        first = self._launches[0][1] if self._launches else 0
        for name, start, end, stream, number, node in self._launches:
            since = (start - first) * 1e-9, (end - first) * 1e-9
            found.append(Launch(name, *since, stream, self._marked.get(number), node))

    def marked(self, mark: int, work: Callable[[], Any]) -> Any:
        """Do some work; kernels that it launches from this thread carry the mark."""
        custom = self._cupti.ExternalCorrelationKind.CUSTOM0
        self._cupti.activity_push_external_correlation_id(custom, mark)
        try:
            return work()
        finally:
            self._cupti.activity_pop_external_correlation_id(custom)

    def _completed(self, activities: list[Any]) -> None:
        """Copy the records of a buffer that is full or was flushed."""
        kinds = self._cupti.ActivityKind
        for record in activities:
            if record.kind == kinds.EXTERNAL_CORRELATION:
                self._marked[record.correlation_id] = record.external_id
            elif record.kind in self._work:
                if record.kind == kinds.MEMCPY:
                    name = f"[memcpy {COPIES.get(record.copy_kind, 'of another kind')}]"
                elif record.kind == kinds.MEMSET:
                    name = "[memset]"
                else:
                    name = readable(record.name)
                seen = name, record.start, record.end, record.stream_id, record.correlation_id
                self._launches.append((*seen, int(getattr(record, "graph_node_id", 0))))
