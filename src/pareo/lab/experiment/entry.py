"""One contestant's part in an experiment, and what became of it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, Self, TypeVar

from pareo.lab.experiment.results import Amount, Json, Natural, Number
from pareo.lab.experiment.statistics import Verdict, compare, interval
from pareo.lab.experiment.turns import Turn

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


@dataclass
class Entry(Outcome):
    """A contestant that trains in turns.

    rounds: in which its samples were taken. turn: what one turn is. first_call: seconds from
    nothing to the end of the first step. parity: how far its first steps were from float64, by
    name. ledger: how it computed, as its adapter reports it.
    """

    rounds: list[Natural] = field(default_factory=list, kw_only=True)
    turn: Turn = field(default_factory=Turn, kw_only=True)
    first_call: Amount | None = field(default=0.0, kw_only=True)
    parity: Mapping[str, Number | None] = field(default_factory=dict, kw_only=True)
    ledger: dict[str, Json] = field(default_factory=dict, kw_only=True)

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

    @property
    def median(self) -> float:
        """The median of `times`; infinite where there are none, so that it is never the best."""
        return median(self.times) if self.times else math.inf

    @property
    def interval(self) -> tuple[float, float, float]:
        """The median between the ends of its 95 % interval."""
        return interval(self.times)

    def add(self, number: int, seconds: float) -> None:
        """A sample of the round of this number: seconds of a training step."""
        raise NotImplementedError

    def in_turn_with(self, other: Self) -> bool:
        """Whether both took their samples in the same rounds."""
        return self.rounds == other.rounds

    def compared_with(self, other: Self) -> Verdict:
        """Whether it is faster or slower; round by round where both ran in the same rounds."""
        return compare(self.times, other.times, interleaved=self.in_turn_with(other))


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
