"""An entry whose process stands: it is asked, takes turns, and leaves when it fails."""

import contextlib
import math
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Generic

from pareo.lab.contestants import Task
from pareo.lab.experiment.answers import Entrant
from pareo.lab.experiment.conditions import Conditions
from pareo.lab.experiment.entry import E, Entry, Status
from pareo.lab.experiment.gate import audit
from pareo.lab.experiment.worker import PATIENCE, Failed, ShortOfMemory, Worker

SOON = 5.0  # seconds that one may take to answer after Ctrl-C


@dataclass
class Running(Generic[E]):
    """A contestant at work for an entry.

    Args:
        entry: what becomes of it is written here.
        scale: steps whose seconds make a sample: those of an epoch in a race, one in a sweep.
        patience: seconds without an answer after which it counts as hanging.
        short: the status of an entry that has run out of memory.
        conditions: what is read of its device during turns.
        ended: its parameters after the last round, where the gate at the end compares them.
    """

    entry: E
    task: Task
    worker: Entrant
    scale: float = 1.0
    patience: float = PATIENCE
    short: Status = "failed"
    steps: int = 0
    seconds: float = 0.0
    losses: list[tuple[float, int]] = field(default_factory=list)  # of a turn, and its steps
    openings: list[float] = field(default_factory=list)
    ended: dict[str, Any] | None = None
    conditions: Conditions = field(default_factory=Conditions)

    @property
    def ok(self) -> bool:
        """Whether it still takes part."""
        return self.entry.status not in ("refused", "failed", "missing", "memory")

    def for_entry(self, entry: E) -> "Running[E]":
        """The same process for another entry, before its first turn."""
        found = Running(entry, self.task, self.worker, self.scale, self.patience, self.short)
        found.conditions = self.conditions
        return found

    def ask(self, *question: Any, when: str = "") -> Any:
        """An answer of its process; None where it has failed, which the entry's note explains."""
        try:
            return self.worker.ask(*question, patience=self.patience)
        except Failed as failure:
            self.fail(failure, when)
            return None

    def fail(self, failure: Failed, when: str = "") -> None:
        """End without times, and end the process."""
        end(self.entry, failure, self.short, when)
        self.worker.close()

    def refuse(self, reason: str) -> None:
        """End without times: its results are wrong."""
        self.entry.end("refused", reason)
        self.worker.close()

    def prepare(
        self, steps: int, seconds: float, longer: bool = True, epoch: int | None = None
    ) -> None:
        """Plan its turns, as `turns.Wanted` describes them, and start over."""
        turn = self.ask("ready", steps, seconds, longer, epoch)
        first_call = self.ask("first_call") if self.ok else None
        if self.ok:
            self.entry.turn, self.entry.first_call = turn, first_call

    def run(self, number: int) -> None:
        """Take one turn, in the round of this number."""
        before = self.steps
        with self.conditions.turn() as seen:
            answer = self.ask("run", when=f"in round {number}: ")
        if answer is None:
            return
        seconds, opening, loss = answer
        if not math.isfinite(loss):
            self.fail(Failed(f"its loss became {loss} in round {number}"))
            return
        self.entry.add(number, seconds * self.scale)
        length = self.entry.turn.length(self.steps)
        self.steps += length
        self.seconds += seconds * length
        self.losses.append((loss, length))
        if opening is not None:
            self.openings.append(opening)
        images = (self.steps - before) * self.task.batch
        self.conditions.note(self.entry, number, seen, images)

    def interrupt(self) -> None:
        """End early: its times stay, and its ledger where it answers soon."""
        if self.entry.rounds:
            joined = f"{self.entry.note}; " if self.entry.note else ""
            self.entry.note = f"{joined}interrupted after {len(self.entry.rounds)} rounds"
        with contextlib.suppress(Failed):
            self.worker.drain(SOON)
            self.entry.ledger = self.worker.ask("ledger", patience=SOON) | self.entry.ledger

    def finish(self, judge: Worker, precision: str) -> None:
        """When all rounds are over: how it computed, and whether it still trains."""
        ledger = self.ask("ledger")
        if not self.ok:
            return
        self.entry.ledger = ledger | self.entry.ledger
        opening = median(self.openings) if self.openings else None
        self.entry.turn = replace(self.entry.turn, opening_seconds=opening)
        found = self.ask("audit", when="after the last round: ")
        if found is None:
            return
        try:
            exact = judge.ask("audit", self.task.batch)
        except Failed as failure:  # of the reference, not of the contestant
            self.fail(Failed(f"no reference to agree with: {failure}"))
            return
        if reason := audit.refusal(found, exact, precision):
            self.refuse(reason)


def end(entry: Entry, failure: Failed, short: Status = "memory", when: str = "") -> None:
    """End an entry that has failed; `short` is its status where it ran out of memory."""
    entry.end(short if isinstance(failure, ShortOfMemory) else "failed", f"{when}{failure}")
