"""What experiments share: what is under way, contestants, this machine and its limits."""

import threading
import time
from collections.abc import Callable
from typing import Any

from pareo import machine
from pareo.lab.contestants import Contestant
from pareo.lab.experiment.results import Machine, Result, versions
from pareo.lab.machine.floors import Peaks, place_of

LONG = 20.0  # seconds, after which limits are measured again


class Session:
    """A measurement under way: `doing` says what it does now, and `watch` is called at a change."""

    def __init__(self, watch: Callable[[Any], None] = lambda session: None) -> None:
        self.doing, self.watch = "", watch
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

    def end(self) -> None:
        """Note how busy the machine is now, if it is busier than it was."""
        if self._machine is not None:
            idle = (self._machine.idle_cores, machine.idle_cores())
            self._machine.idle_cores = min((one for one in idle if one is not None), default=None)

    @property
    def long(self) -> bool:
        """Whether it has lasted so long that the machine may be faster or slower by now."""
        return time.perf_counter() - self._began > LONG

    def header(self, declared: type[Result], kind: str) -> dict[str, Any]:
        """The first fields of a result."""
        self._machine = self._machine or Machine.here()
        return declared.header(kind, here=self._machine)


class Experiment(Session):
    """A session of contestants that train.

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
        super().__init__(watch)
        self.precision = precision
        self.contestants = {name: one.in_precision(precision) for name, one in contestants.items()}
        self.missing = {
            name: reason
            for name, one in contestants.items()
            if (reason := _why_missing(one, precision))
        }
        self.peaks = Peaks(threads, precision)

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


def conditions(settings: dict[str, Any]) -> dict[str, Any]:
    """What must be the same for an experiment to be continued: settings, versions, machine."""
    return {"settings": settings, **surroundings(Machine.here(), versions())}


def surroundings(machine: Machine, versions: dict[str, str | None]) -> dict[str, Any]:
    """What must be the same of a machine and its libraries for an experiment to be continued."""
    return {
        "versions": versions,
        "machine": [machine.processor, machine.cores],
        "cards": [[card.name, card.driver] for card in machine.gpus],
    }
