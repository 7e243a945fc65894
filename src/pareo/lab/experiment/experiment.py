"""What race, sweep and kernels share: contestants, what is under way, this machine's limits."""

import threading
import time
from collections.abc import Callable
from typing import Any

from pareo import machine
from pareo.lab.contestants import Contestant
from pareo.lab.experiment.results import Machine, Result
from pareo.lab.machine.floors import Peaks, place_of

LONG = 20.0  # seconds, after which limits are measured again


class Experiment:
    """An experiment under way: `doing` says what it does now, and `watch` is called at a change.

    Attributes:
        contestants: by name, in the precision of the experiment.
        missing: why a contestant cannot take part, for those that cannot.
        peaks: the best measured speed of each place where contestants compute.
    """

    def __init__(
        self,
        contestants: dict[str, Contestant],
        precision: str,
        threads: int,
        watch: Callable[[Any], None] = lambda experiment: None,
    ) -> None:
        self.precision, self.doing = precision, ""
        self.contestants = {name: one.in_precision(precision) for name, one in contestants.items()}
        self.missing = {
            name: reason
            for name, one in contestants.items()
            if (reason := _why_missing(one, precision))
        }
        self.peaks = Peaks(threads, precision)
        self.watch = watch
        self._machine: Machine | None = None
        self._lock = threading.Lock()
        self._began = time.perf_counter()

    def say(self, doing: str) -> None:
        """Something else is under way."""
        with self._lock:
            self.doing = doing
            self.watch(self)

    def begin(self) -> None:
        """Note the time, and how busy the machine is."""
        self._machine = Machine.here(machine.idle_cores())
        self._began = time.perf_counter()

    @property
    def long(self) -> bool:
        """Whether it has lasted so long that the machine may be faster or slower by now."""
        return time.perf_counter() - self._began > LONG

    def header(self, declared: type[Result], kind: str) -> dict[str, Any]:
        """The first fields of a result."""
        self._machine = self._machine or Machine.here()
        return declared.header(kind, here=self._machine)

    def present(self) -> dict[str, Contestant]:
        """The contestants that can take part."""
        return {name: one for name, one in self.contestants.items() if name not in self.missing}

    def places(self, contestants: dict[str, Contestant] | None = None) -> set[str]:
        """Where contestants compute: all of them, or these."""
        every = self.contestants if contestants is None else contestants
        return {place_of(one) for one in every.values()}

    def measure(self, places: set[str]) -> dict[str, tuple[float, float]]:
        """Measure the limits of places: FLOP/s and bytes a second."""
        self.say("measuring this machine's limits")
        return self.peaks.measure(places)


def _why_missing(contestant: Contestant, precision: str) -> str:
    """Why a contestant cannot take part; empty where it can."""
    if precision != "float32" and not contestant.gpu:
        return f"it computes in float32 only, not in {precision}"
    return contestant.missing() or ""
