"""One contestant's part in an experiment, and what became of it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, Self, TypeVar

from pareo.lab.experiment.results import Amount, Json, Natural, Number
from pareo.lab.experiment.statistics import FEWEST, Verdict, compare, interval
from pareo.lab.experiment.turns import Turn
from pareo.lab.machine.energy import Energy

Status = Literal["ok", "refused", "failed", "missing", "waiting", "memory"]


@dataclass
class Outcome:
    """A contestant, and whether it has times: `note` says why not, or what a reader must know.

    refused: its results are wrong. failed: it ended, or gave no answer. missing: it cannot run
    here. waiting: its turn has not come. memory: it needs more memory than there is.
    """

    contestant: str
    status: Status = field(default="ok", kw_only=True)
    note: str = field(default="", kw_only=True)

    @property
    def ours(self) -> bool:
        """Whether it is pareo itself, not a framework that pareo is compared with."""
        return self.contestant.startswith("pareo")

    def end(self, status: Status, note: str) -> None:
        """Leave the experiment without times: earlier samples are dropped."""
        self.status, self.note = status, note
        self.drop()

    def drop(self) -> None:
        """Forget all samples."""
        raise NotImplementedError


@dataclass(kw_only=True)
class Mark:
    """A round whose sample was taken under throttling, and why: it is kept, but left out."""

    round: Natural
    why: str


@dataclass(kw_only=True)
class Clocks:
    """The device during all turns; None is what is not known.

    megahertz: the lowest. celsius: the highest. watts: the mean. stolen: the largest share of the
    processor's time that a hypervisor gave to others.
    """

    megahertz: Amount | None = None
    celsius: Number | None = None
    watts: Amount | None = None
    stolen: Amount | None = None


@dataclass
class Entry(Outcome):
    """A contestant that trains in turns.

    rounds: in which its samples were taken. turn: what one turn is. first_call: seconds from
    nothing to the end of the first step. parity: how far its first steps were from float64, by
    name. ledger: how it computed, as its adapter reports it. marks: rounds under throttling.
    clocks, energy: what was read of the device during its turns.
    """

    rounds: list[Natural] = field(default_factory=list, kw_only=True)
    turn: Turn = field(default_factory=Turn, kw_only=True)
    first_call: Amount | None = field(default=0.0, kw_only=True)
    parity: Mapping[str, Number | None] = field(default_factory=dict, kw_only=True)
    ledger: dict[str, Json] = field(default_factory=dict, kw_only=True)
    marks: list[Mark] = field(default_factory=list, kw_only=True)
    clocks: Clocks = field(default_factory=Clocks, kw_only=True)
    energy: Energy = field(default_factory=Energy, kw_only=True)

    def __post_init__(self) -> None:
        if len(self.rounds) != len(self.times):
            raise ValueError(f"Expected {len(self.times)} rounds; got {len(self.rounds)}")
        peak = self.ledger.get("peak_memory_bytes")
        if peak is not None and not (type(peak) in (int, float) and 0 <= peak < 2**62):
            raise ValueError(f"Expected bytes in the ledger's peak_memory_bytes; got {peak!r:.60}")

    @property
    def times(self) -> list[float]:
        """Samples, in seconds of what contestants are compared by: an epoch or an image."""
        raise NotImplementedError

    def end(self, status: Status, note: str) -> None:
        super().end(status, note)
        self.marks, self.clocks, self.energy = [], Clocks(), Energy()

    @property
    def counted(self) -> dict[int, float]:
        """The samples that verdicts are made of, by round: those that are not marked.

        All of them count where fewer than FEWEST would remain, or where rounds are not told apart.
        """
        every = dict(zip(self.rounds, self.times, strict=True))
        left = {mark.round for mark in self.marks}
        clear = {number: time for number, time in every.items() if number not in left}
        return clear if len(clear) >= FEWEST else every

    @property
    def counted_times(self) -> list[float]:
        """The samples that count, in order."""
        counted = self.counted
        return list(counted.values()) if 0 < len(counted) < len(self.times) else self.times

    @property
    def median(self) -> float:
        """The median of what counts; infinite where there is none, so that it is never the best."""
        return median(self.counted_times) if self.times else math.inf

    @property
    def interval(self) -> tuple[float, float, float]:
        """The median between the ends of its 95 % interval."""
        return interval(self.counted_times)

    def add(self, number: int, seconds: float) -> None:
        """A sample of the round of this number: seconds of a training step."""
        raise NotImplementedError

    def in_turn_with(self, other: Self) -> bool:
        """Whether both took their samples in the same rounds."""
        return self.rounds == other.rounds

    def compared_with(self, other: Self) -> Verdict:
        """Whether it is faster or slower; round by round where both ran in the same rounds."""
        if self.in_turn_with(other) and len(set(self.rounds)) == len(self.rounds):
            mine, others = self.counted, other.counted
            both = [number for number in mine if number in others]
            if len(both) >= FEWEST:
                return compare([mine[n] for n in both], [others[n] for n in both])
        alike = self.in_turn_with(other)
        these, those = (
            (self.times, other.times) if alike else (self.counted_times, other.counted_times)
        )
        return compare(these, those, interleaved=alike)

    def left_out(self) -> str:
        """What is said of samples that do not count; empty where all do."""
        away = len(self.times) - len(self.counted_times)
        if not self.marks:
            return ""
        why = self.marks[0].why
        if not away:
            return (
                f"{self.contestant}: {len(self.marks)} of {len(self.times)} samples were taken "
                f"under throttling ({why}); too few others remain, so all count."
            )
        return (
            f"{self.contestant}: {away} of {len(self.times)} samples were taken under throttling "
            f"({why}); kept, but left out of verdicts."
        )


E = TypeVar("E", bound=Entry)


def ranked(entries: Iterable[E]) -> list[E]:
    """Those that were timed, the fastest first."""
    return sorted((one for one in entries if one.times), key=lambda one: one.median)


def fastest(entries: Iterable[E], ours: bool) -> E | None:
    """The fastest of pareo's own or of its peers; None where none was timed."""
    return next((one for one in ranked(entries) if one.ours == ours), None)


def agreement(entries: Iterable[Entry]) -> str:
    """How closely those that were timed agree with float64, in a sentence."""
    timed = ranked(entries)
    if not timed:
        return "No contestant was timed."
    loss, move = (
        max(one.parity.get(name) or 0.0 for one in timed) for name in ("loss", "parameter")
    )
    return (
        f"All contestants that were timed agree with float64: losses within {loss:.0e}, updates of "
        f"parameters within {move:.0e}."
    )
