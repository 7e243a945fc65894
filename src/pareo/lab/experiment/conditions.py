"""The conditions of each turn: clocks, throttling and energy, read around it and during it.

The CPU is read before and after a turn. A GPU is also read during it, by a thread of this process,
which waits meanwhile for the contestant's: clocks fall as soon as a GPU is idle.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pareo.lab.experiment.entry import Entry, Mark
from pareo.lab.machine import clocks, nvml
from pareo.lab.machine.energy import Energy, Rapl

FIRST, EVERY = 0.05, 0.2  # seconds from the start of a turn to the first reading, and between two
IDLE = 1.0  # seconds over which the power of an idle GPU is measured


@dataclass
class Seen:
    """What was seen during one turn.

    joules, seconds: of the whole turn, with its opening step. reasons: why a GPU was throttled.
    """

    seconds: float = 0.0
    stolen: float | None = None
    megahertz: float | None = None
    celsius: int | None = None
    watts: float | None = None
    joules: float | None = None
    reasons: int = 0


@dataclass
class Conditions:
    """Reads a device around turns.

    source: the energy counter, or empty. idle_watts: of the GPU when nothing ran.
    fastest: the highest frequency that was seen, which later turns are held against.
    """

    gpu: nvml.Gpu | None = None
    rapl: Rapl | None = None
    source: str = ""
    idle_watts: float | None = None
    fastest: float = 0.0
    lately: list[nvml.Reading] = field(default_factory=list)

    @classmethod
    def of(cls, on_gpu: bool) -> "Conditions":
        """The conditions of a GPU, or of this processor."""
        if not on_gpu:
            rapl = Rapl.opened()
            return cls(rapl=rapl, source="RAPL" if rapl else "")
        gpu = nvml.opened()
        counts = gpu is not None and gpu.joules() is not None
        return cls(gpu=gpu, source="NVML" if counts else "")

    def note(self, entry: Entry, number: int, seen: Seen, images: int) -> None:
        """Write to an entry what was seen in the round of this number, which trained so many."""
        if why := self.mark(seen):
            entry.marks.append(Mark(round=number, why=why))
        held = entry.clocks
        held.megahertz = _of(min, held.megahertz, seen.megahertz)
        held.celsius = _of(max, held.celsius, seen.celsius)
        held.stolen = _of(max, held.stolen, seen.stolen)
        if seen.watts is not None:
            turns = len(entry.rounds)
            held.watts = ((held.watts or 0.0) * (turns - 1) + seen.watts) / turns
        if seen.joules is not None:
            if not entry.energy.source:
                entry.energy = Energy(source=self.source, idle_watts=self.idle_watts)
            entry.energy.add(seen.joules, seen.seconds, images)

    def rest(self) -> None:
        """Measure the power of a GPU on which nothing runs."""
        if self.gpu is None:
            return
        before, start = self.gpu.joules(), time.perf_counter()
        time.sleep(IDLE)
        after, end = self.gpu.joules(), time.perf_counter()
        if before is not None and after is not None:
            self.idle_watts = max(0.0, after - before) / (end - start)

    @contextmanager
    def turn(self) -> Iterator[Seen]:
        """What is seen until this ends is written to the object that it gives."""
        seen = Seen()
        before, energy = clocks.read(), self.rapl.read() if self.rapl else []
        joules = self.gpu.joules() if self.gpu else None
        over = threading.Event()
        thread = threading.Thread(target=self._look, args=(over,), daemon=True)
        self.lately = []
        if self.gpu is not None:
            thread.start()
        start = time.perf_counter()
        try:
            yield seen
        finally:
            seen.seconds = time.perf_counter() - start
            after = clocks.read()
            seen.stolen, seen.megahertz = clocks.stolen_share(before, after), after.megahertz
            if self.rapl is not None:
                seen.joules = self.rapl.joules(energy, self.rapl.read())
            if self.gpu is not None:
                end = self.gpu.joules()
                over.set()
                thread.join()
                if joules is not None and end is not None:
                    seen.joules = max(0.0, end - joules)
                summarise(seen, self.lately)

    def _look(self, over: threading.Event) -> None:
        wait = FIRST
        while self.gpu is not None and not over.wait(wait):
            self.lately.append(self.gpu.read())
            wait = EVERY

    def mark(self, seen: Seen) -> str:
        """Why a sample is left out of verdicts, in words; empty where it counts."""
        if self.gpu is not None:
            return nvml.throttled(seen.reasons)
        found = []
        if seen.stolen is not None and seen.stolen > clocks.STOLEN:
            found.append(f"{seen.stolen * 100:.0f} % of the processor's time went elsewhere")
        if seen.megahertz is not None:
            self.fastest = max(self.fastest, seen.megahertz)
            if seen.megahertz < clocks.SLOWER * self.fastest:
                found.append(f"{seen.megahertz:.0f} MHz, not {self.fastest:.0f}")
        return "; ".join(found)


def _of(choose: Callable[[float, float], float], one: Any, other: Any) -> Any:
    """The one that is chosen of two; the other where one is not known."""
    return choose(one, other) if one is not None and other is not None else _known(one, other)


def _known(one: Any, other: Any) -> Any:
    return other if one is None else one


def summarise(seen: Seen, readings: list[nvml.Reading]) -> None:
    """Note the lowest clock, the highest temperature, the mean power and all reasons of a turn."""
    clocked = [one.megahertz for one in readings if one.megahertz is not None]
    warm = [one.celsius for one in readings if one.celsius is not None]
    power = [one.watts for one in readings if one.watts is not None]
    seen.megahertz = min(clocked, default=None)
    seen.celsius = max(warm, default=None)
    seen.watts = sum(power) / len(power) if power else None
    for one in readings:
        seen.reasons |= one.reasons
