"""Measuring a machine's ceilings: everything in turn, round by round, and kept on disk."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pareo import machine
from pareo.device import Device
from pareo.lab.experiment.worker import Failed, Worker
from pareo.lab.machine.ceilings import cpu, datasheet, gpu, store
from pareo.lab.machine.ceilings.model import Ceilings, Limit, Probe
from pareo.training import floor

SECONDS = 60.0  # after which no further round begins
Watch = Callable[[int, int, str], None]  # probes done, of how many, what is measured now


@dataclass(frozen=True)
class Limits:
    """What a floor needs: FLOP/s of matrix products, bytes a second of a copy in memory."""

    peak: Limit
    bandwidth: Limit


def ceilings_of(
    device: Device, again: bool = False, watch: Watch = lambda done, of, what: None
) -> Ceilings:
    """The ceilings of a device: those kept on disk, or measured now, which takes a minute.

    What was measured while other programs ran serves only as long as they do.
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

    Ceilings from when other programs ran do not count. A brief measurement takes about a second, in
    a process of its own, and is not kept. On a GPU the peak is that of the device's precision.
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


def _measured(
    device: Device, key: dict[str, object], idle_cores: float | None, watch: Watch
) -> Ceilings:
    place: Any = gpu if device.name == "cuda" else cpu
    probes = place.probes(device.threads)
    samples: dict[Probe, list[float]] = {probe: [] for probe in probes}
    started = time.perf_counter()
    with ExitStack() as stack:
        workers: dict[str, Worker | None] = {}  # one for each library; None where it cannot do it
        for number in range(place.ROUNDS):
            if number > 2 and time.perf_counter() - started > SECONDS:
                break
            for position, probe in enumerate(probes):
                watch(number * len(probes) + position, place.ROUNDS * len(probes), str(probe))
                whose = "anew" if place.ANEW and probe.kind == "overhead" else probe.by
                if whose not in workers:
                    fresh = Worker(place.Prober, threads=device.threads)
                    workers[whose] = stack.enter_context(fresh)
                worker = workers[whose]
                if worker is None:
                    continue
                try:
                    samples[probe].append(worker.ask(probe))
                except Failed:  # which sets no limit
                    worker.close()
                    workers[whose] = None
            if (last := workers.pop("anew", None)) is not None:
                last.close()
    taken = {probe: tuple(found) for probe, found in samples.items() if found}
    when = datetime.now(UTC).isoformat(timespec="seconds")
    promised = datasheet.promised(device)
    # Others may have come meanwhile.
    idle = None if idle_cores is None else min(idle_cores, machine.idle_cores() or 0.0)
    return Ceilings(str(key["device"]), key, when, place.levels(), taken, promised, idle)
