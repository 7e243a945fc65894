"""What was measured of a machine, probe by probe, and the limits that follow from it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pareo.lab.experiment import statistics

KINDS = ("product", "stream", "overhead")
NARROWEST = 0.005  # part on either side: clocks of processors move by more


@dataclass(frozen=True)
class Limit:
    """A limit with the interval that it lies in, and what reached it.

    A rate is the best that was seen; its interval goes down to what a usual round reached and, for
    a better round may come, as far up. An overhead is a median with its bootstrap interval. None is
    narrower than NARROWEST.
    """

    value: float
    low: float
    high: float
    how: str

    def agrees(self, other: "Limit") -> bool:
        """Whether two limits may be the same: their intervals meet.

        >>> Limit(70.0, 68.0, 70.0, "a").agrees(Limit(69.0, 66.0, 69.0, "b"))
        True
        """
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True)
class Probe:
    """One thing to measure, again and again.

    kind: a matrix "product", a "stream" of bytes, or an "overhead". name: the stream's or the
    overhead's. by: the library that does it. size: the side of a product, or bytes in all.
    """

    kind: str
    name: str
    by: str
    threads: int
    size: int = 0

    def __str__(self) -> str:
        if self.kind == "product":
            return f"{self.by}, {self.size} x {self.size}"
        return self.by


@dataclass(frozen=True)
class Level:
    """A cache, or memory: the bytes of one instance, and the cores that share it."""

    name: str
    nbytes: int
    shared_by: int

    def total(self, threads: int) -> int:
        """Bytes of all the instances that so many threads have, one on each core.

        >>> Level("L2", 1 << 20, 1).total(4) >> 20, Level("L3", 1 << 25, 8).total(4) >> 20
        (4, 32)
        """
        return self.nbytes * math.ceil(threads / self.shared_by)


@dataclass(frozen=True)
class Ceilings:
    """The limits of a device: samples by probe (rates; seconds of overheads), and its caches.

    idle_cores: how many nobody used before it was measured, where that is known and matters.
    """

    device: str
    key: Mapping[str, Any]
    when: str
    levels: tuple[Level, ...]
    samples: Mapping[Probe, tuple[float, ...]]
    datasheet: Mapping[str, Any]
    idle_cores: float | None = None

    @property
    def busy(self) -> bool:
        """Whether other programs took part of the machine while it was measured."""
        return self.idle_cores is not None and self.idle_cores < self.threads - 0.25

    @property
    def threads(self) -> int:
        """The most threads that it was measured with."""
        return max((probe.threads for probe in self.samples), default=1)

    def peak(self, dtype: str = "float32", threads: int | None = None) -> Limit:
        """FLOP/s of the best matrix product in a dtype, whoever did it, of whatever size."""
        count = threads or self.threads
        return self._best(
            f"a product of {dtype} with {count} threads",
            lambda p: p.kind == "product" and p.name == dtype and p.threads == count,
        )

    def bandwidth(self, nbytes: int, mix: float = 1.0, threads: int | None = None) -> Limit:
        """Bytes a second, for so many in all, of which `mix` are read for each that is written.

        What more bytes than these reached, these could reach, too: so a limit never falls when
        there is less to move.
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
        """Each cache and memory: its name, its bytes, and the bytes of a stream that fits it.

        A stream of half a cache is in it, and nowhere nearer. Memory's bytes are 0 where untold.
        """
        count = threads or self.threads
        sizes = sorted({p.size for p in self.samples if p.kind == "stream" and p.threads == count})
        found, nearer = [], 0
        for level in self.levels:
            inside = [size for size in sizes if nearer < size <= level.total(count) // 2]
            if inside:
                found.append((level.name, level.nbytes, inside[-1]))
            nearer = level.total(count)
        if sizes:
            found.append(("memory", int(self.key.get("memory_bytes") or 0), sizes[-1]))
        return found

    def stream(self, name: str, nbytes: int, threads: int | None = None) -> Limit:
        """Bytes a second of a stream of just so many bytes."""
        count = threads or self.threads
        return self._best(
            f"a {name} of {nbytes} B with {count} threads",
            lambda p: (p.name, p.threads, p.size) == (name, count, nbytes),
        )

    def overheads(self) -> dict[Probe, Limit]:
        """Seconds that a call costs that computes next to nothing."""
        found = {}
        for probe, samples in self.samples.items():
            if probe.kind == "overhead":
                low, high = _ends(samples)
                middle = median(samples)
                least = NARROWEST * middle
                low, high = min(low, middle - least), max(high, middle + least)
                found[probe] = Limit(middle, low, high, str(probe))
        return found

    def limit(self, probe: Probe) -> Limit:
        """What one probe says."""
        rates = self.samples[probe]
        usual, best = _ends(rates)[0], max(rates)
        spread = max(best - usual, NARROWEST * best)
        return Limit(best, best - spread, best + spread, str(probe))

    def _best(self, what: str, fits: Callable[[Probe], bool]) -> Limit:
        found = [self.limit(probe) for probe in self.samples if fits(probe)]
        if not found:
            raise LookupError(f"{self.device}: no measurement of {what}")
        return max(found, key=lambda limit: limit.value)


def _ends(samples: Sequence[float]) -> tuple[float, float]:
    """The interval of a median; from the least to the most where samples are too few for one."""
    low, _, high = statistics.interval(samples)
    return (low, high) if statistics.has_ends(low, high) else (min(samples), max(samples))


def stream_of(mix: float) -> str:
    """The stream that reads about as many bytes for each that it writes.

    Which differs by a third on some machines, so an operator is held against its like.

    >>> stream_of(1.0), stream_of(2.0), stream_of(1e6), stream_of(0.5)
    ('copy', 'triad', 'read', 'copy')
    """
    if mix >= 8:
        return "read"
    return "triad" if mix > 1.5 else "copy"
