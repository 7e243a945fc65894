"""One contestant's part in an experiment, and what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pareo.lab.experiment.results import Amount, Json, Natural, Number
from pareo.lab.experiment.turns import Turn

Status = Literal["ok", "refused", "failed", "missing", "waiting", "memory"]


@dataclass
class Outcome:
    """Who took part, and whether it has times: `note` says why not, or what a reader must know.

    refused: its results are wrong. failed: it ended, or gave no answer. missing: it cannot run
    here. waiting: its turn has not come. memory: it needs more memory than there is.
    """

    contestant: str
    status: Status = field(default="ok", kw_only=True)
    note: str = field(default="", kw_only=True)

    def end(self, status: Status, note: str) -> None:
        """Leave the experiment without times: what was measured before is dropped."""
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

    def add(self, number: int, seconds: float) -> None:
        """A sample of the round of this number: seconds of a training step."""
        raise NotImplementedError
