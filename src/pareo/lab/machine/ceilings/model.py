"""What was measured of a machine, probe by probe, and the limits that follow from it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Annotated, Literal

from msgspec import Meta

from pareo.lab.experiment import statistics
from pareo.lab.experiment.results import Count, Natural, Number, Positive

NARROWEST = 0.005  # share of the value on either side: clocks of processors move by more


@dataclass(frozen=True)
class Limit:
    """A limit with its interval, and what reached it.

    A rate is the best that was seen. Its interval goes down to what a usual round reached, and as
    far up, because a better round may come. An overhead is a median with its bootstrap interval.
    No interval is narrower than NARROWEST.
    """

    value: float
    low: float
    high: float
    how: str

    def agrees(self, other: "Limit") -> bool:
        """Whether two limits may be the same: their intervals overlap.

        >>> Limit(70.0, 68.0, 70.0, "a").agrees(Limit(69.0, 66.0, 69.0, "b"))
        True
        """
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class Probe:
    """One thing to measure, several times.

    kind: a matrix "product", a "stream" of bytes, or an "overhead". name: the dtype of a product,
    the loop of a stream, the call of an overhead. by: the library that does it. size: the side of
    the matrices of a product, the bytes of all arrays of a stream.
    """

    kind: Literal["product", "stream", "overhead"]
    name: str
    by: str
    threads: Natural
    size: Natural = 0

    def __str__(self) -> str:
        if self.kind == "product":
            return f"{self.by}, {self.size} x {self.size}"
        return self.by


@dataclass(frozen=True)
class Measured(Probe):
    """A probe with its samples: rates, or the seconds of an overhead."""

    samples: Annotated[list[Positive], Meta(min_length=1)] = field(kw_only=True)

    def rate(self) -> Limit:
        """The limit that it sets, where its samples are rates."""
        usual, best = _ends(self.samples)[0], max(self.samples)
        spread = max(best - usual, NARROWEST * best)
        return Limit(best, best - spread, best + spread, str(self))

    def seconds(self) -> Limit:
        """The usual overhead, where its samples are seconds."""
        low, high = _ends(self.samples)
        middle = median(self.samples)
        spread = NARROWEST * middle
        return Limit(middle, min(low, middle - spread), max(high, middle + spread), str(self))


@dataclass(frozen=True)
class Level:
    """A cache, or memory: the bytes of one instance, and the cores that share it."""

    name: str
    nbytes: Count
    shared_by: Count

    def total(self, threads: int) -> int:
        """Bytes of all the instances that these threads have, one thread on each core.

        >>> Level("L2", 1 << 20, 1).total(4) >> 20, Level("L3", 1 << 25, 8).total(4) >> 20
        (4, 32)
        """
        return self.nbytes * math.ceil(threads / self.shared_by)


@dataclass(frozen=True, kw_only=True)
class DataSheet:
    """What the maker of a device promises: FLOP/s by precision, bytes a second, and the source."""

    flops: dict[str, Number | None] = field(default_factory=dict)
    bandwidth: Number | None = None
    source: str


@dataclass(frozen=True, kw_only=True)
class Key:
    """What a measurement holds for: if any of these differs, it is made again.

    probes: the version of the set of probes. cards: name and driver of each GPU.
    """

    probes: Natural = 0
    device: str = "cpu"
    processor: str = ""
    cores: Natural | None = None
    memory_bytes: Natural | None = None
    threads: Natural = 1
    cards: list[tuple[str, str]] = field(default_factory=list)
    libraries: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """The limits of a device: every sample of every probe, and its caches.

    idle_cores: cores that no other program used while it was measured, where that is known.
    """

    schema: Literal[1] = 1
    device: str
    key: Key
    when: str
    levels: list[Level]
    samples: list[Measured]
    datasheet: DataSheet
    idle_cores: Number | None

    @property
    def name(self) -> str:
        """The name of the processor, or of the GPU."""
        gpu = self.device != "cpu" and self.key.cards
        return gpu[0][0] if gpu else self.key.processor

    @property
    def busy(self) -> bool:
        """Whether other programs took part of the machine while it was measured."""
        return self.idle_cores is not None and self.idle_cores < self.threads - 0.25

    @property
    def threads(self) -> int:
        """The largest number of threads that it was measured with."""
        return max((probe.threads for probe in self.samples), default=1)

    def peak(self, dtype: str = "float32", threads: int | None = None) -> Limit:
        """FLOP/s of the best matrix product in a dtype, by any library and of any size."""
        count = threads or self.threads
        return self._best(
            f"a product of {dtype} with {count} threads",
            lambda p: p.kind == "product" and p.name == dtype and p.threads == count,
        )

    def bandwidth(self, nbytes: int, mix: float = 1.0, threads: int | None = None) -> Limit:
        """Bytes a second for `nbytes` in all, of which `mix` are read for each that is written.

        A rate that more bytes have reached is possible for fewer bytes, too. So the limit never
        falls when there is less to move.
        """
        name, count = stream_of(mix), threads or self.threads
        sizes = {p.size for p in self.samples if p.name == name and p.threads == count}
        fitting = max((size for size in sizes if size <= nbytes), default=min(sizes, default=0))
        return self._best(
            f"a {name} with {count} threads",
            lambda p: p.name == name and p.threads == count and p.size >= fitting,
        )

    def memory(self, mix: float = 1.0, threads: int | None = None) -> Limit:
        """Bytes a second of what is in no cache: the largest stream."""
        name = stream_of(mix)
        largest = max((p.size for p in self.samples if p.name == name), default=0)
        return self.bandwidth(largest, mix, threads)

    def hierarchy(self, threads: int | None = None) -> list[tuple[str, int, int]]:
        """Each cache and memory: its name, its bytes, and the bytes of a copy that fits it.

        A stream of half the size of a cache lies in that cache, and in none that is nearer. The
        bytes of memory are 0 if they are unknown.
        """
        count = threads or self.threads
        copies = [p for p in self.samples if (p.kind, p.name) == ("stream", "copy")]
        sizes = sorted({p.size for p in copies if p.threads == count})
        found, nearer = [], 0
        for level in self.levels:
            inside = [size for size in sizes if nearer < size <= level.total(count) // 2]
            if inside:
                found.append((level.name, level.nbytes, inside[-1]))
            nearer = level.total(count)
        if sizes:
            found.append(("memory", int(self.key.memory_bytes or 0), sizes[-1]))
        return found

    def stream(self, name: str, nbytes: int, threads: int | None = None) -> Limit:
        """Bytes a second of a stream of exactly this many bytes."""
        count = threads or self.threads
        return self._best(
            f"a {name} of {nbytes} B with {count} threads",
            lambda p: (p.name, p.threads, p.size) == (name, count, nbytes),
        )

    def overheads(self) -> list[tuple[str, Limit]]:
        """Seconds of each call that computes next to nothing, by its name."""
        return [(one.name, one.seconds()) for one in self.samples if one.kind == "overhead"]

    def _best(self, what: str, fits: Callable[[Probe], bool]) -> Limit:
        found = [probe.rate() for probe in self.samples if fits(probe)]
        if not found:
            raise LookupError(f"{self.device}: no measurement of {what}")
        return max(found, key=lambda limit: limit.value)


def _ends(samples: Sequence[float]) -> tuple[float, float]:
    """The interval of a median; smallest and largest of samples that are too few for one."""
    low, _, high = statistics.interval(samples)
    return (low, high) if statistics.has_ends(low, high) else (min(samples), max(samples))


def stream_of(mix: float) -> str:
    """The stream that reads about `mix` bytes for each byte that it writes.

    Their rates differ by a third on some machines, so an operator is compared with the like of it.

    >>> stream_of(1.0), stream_of(2.0), stream_of(1e6), stream_of(0.5)
    ('copy', 'triad', 'read', 'copy')
    """
    if mix >= 8:
        return "read"
    return "triad" if mix > 1.5 else "copy"
