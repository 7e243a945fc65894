"""Measures the ceilings of a machine: every probe in turn, round by round; kept on disk."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from pareo import machine
from pareo.device import Device
from pareo.lab.experiment.rounds import rounds
from pareo.lab.experiment.worker import Failed, Worker
from pareo.lab.machine.ceilings import cpu, datasheet, gpu, store
from pareo.lab.machine.ceilings.model import Ceilings, Key, Level, Limit, Measured, Probe
from pareo.training import floor

SECONDS = 60.0  # after which no further round begins
FEWEST = 3  # rounds, however long they take
Watch = Callable[[int, int, str], None]  # probes done, of how many, what is measured now


@dataclass(frozen=True)
class Limits:
    """What a floor is computed from: FLOP/s of matrix products, bytes a second of a copy."""

    peak: Limit
    bandwidth: Limit


def ceilings_of(
    device: Device, again: bool = False, watch: Watch = lambda done, of, what: None
) -> Ceilings:
    """The ceilings of a device: those kept on disk, or measured now, which takes a minute.

    Ceilings that were measured while other programs ran are used only as long as those run.
    """
    key = store.key_of(device)
    kept = None if again else store.load(key)
    idle = None if device.name == "cuda" else machine.idle_cores()
    if kept is None or (kept.busy and not replace(kept, idle_cores=idle).busy):
        kept = _measured(device, key, idle, watch)
        store.save(kept)
    return kept


def limits(device: Device, dtype: str = "float32", again: bool = False) -> Limits:
    """The two limits of a floor: from ceilings that are kept, else (or `again`) measured briefly.

    Ceilings that were measured while other programs ran do not count. A brief measurement takes
    about a second, in a process of its own, and is not kept. On a GPU the peak is that of the
    device's precision.
    """
    name = device.precision if device.name == "cuda" and dtype == "float32" else dtype
    kept = None if again else store.load(store.key_of(device))
    if kept is not None and not kept.busy:
        return Limits(kept.peak(name), kept.memory())
    with Worker(_brief, device, dtype) as worker:
        peak, bandwidth = worker.ask()
    return Limits(
        Limit(peak, peak, peak, "one large product"),
        Limit(bandwidth, bandwidth, bandwidth, "one large copy"),
    )


def _brief(device: Device, dtype: str) -> Callable[[], tuple[float, float]]:
    def answer() -> tuple[float, float]:
        return floor.peak(device, dtype), floor.bandwidth(device)

    return answer


class Place(Protocol):
    """What `cpu` and `gpu` offer. FRESH: whether overheads have a new process in each round."""

    ROUNDS: int
    FRESH: bool

    def probes(self, threads: int) -> list[Probe]:
        """What is measured."""

    def levels(self) -> list[Level]:
        """The caches."""

    def Prober(self) -> Callable[[Probe], float]:  # a class in both
        """What takes one sample of a probe, in a process of its own."""


class _Measuring:
    """A process for each library, and the samples of its probes."""

    def __init__(self, place: Place, device: Device, watch: Watch) -> None:
        self._place, self._threads, self._watch = place, device.threads, watch
        self._probes = place.probes(device.threads)
        self._workers: dict[str, Worker | None] = {}  # None: the library cannot do it
        self._began = time.perf_counter()
        self.samples: dict[Probe, list[float]] = {probe: [] for probe in self._probes}

    def run(self) -> None:
        """Take a sample of each probe, round by round."""
        with ExitStack() as self._stack:
            rounds(lambda: self._probes, self._sample, self._over, self._renew)

    def _sample(self, probe: Probe, number: int) -> None:
        count = len(self._probes)
        done = (number - 1) * count + self._probes.index(probe)
        self._watch(done, self._place.ROUNDS * count, str(probe))
        whose = "fresh" if self._place.FRESH and probe.kind == "overhead" else probe.by
        if whose not in self._workers:
            worker = Worker(self._place.Prober, threads=self._threads)
            self._workers[whose] = self._stack.enter_context(worker)
        asked = self._workers[whose]
        if asked is None:
            return
        try:
            self.samples[probe].append(asked.ask(probe))
        except Failed:  # a library that fails sets no limit
            asked.close()
            self._workers[whose] = None

    def _renew(self, number: int) -> None:
        if (last := self._workers.pop("fresh", None)) is not None:
            last.close()

    def _over(self, number: int, took: float) -> bool:
        late = time.perf_counter() - self._began > SECONDS
        return number >= self._place.ROUNDS or (number >= FEWEST and late)


def _measured(device: Device, key: Key, idle_cores: float | None, watch: Watch) -> Ceilings:
    place: Place = gpu if device.name == "cuda" else cpu
    measuring = _Measuring(place, device, watch)
    measuring.run()
    # Other programs may have started meanwhile.
    idle = None if idle_cores is None else min(idle_cores, machine.idle_cores() or 0.0)
    return Ceilings(
        device=key.device,
        key=key,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        levels=place.levels(),
        samples=[
            Measured(**asdict(probe), samples=taken)
            for probe, taken in measuring.samples.items()
            if taken
        ],
        datasheet=datasheet.promised(device),
        idle_cores=idle,
    )
