"""Into a race: a contestant in a process of its own, through the parity gate, ready for turns."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from pareo.lab.contestants import Contestant, Task
from pareo.lab.experiment.answers import Entrant
from pareo.lab.experiment.gate import audit
from pareo.lab.experiment.gate.parity import reference
from pareo.lab.experiment.runner import Runner, agreement
from pareo.lab.experiment.worker import PATIENCE, Failed, Worker


@dataclass
class Row:
    """What became of one contestant; samples are seconds an epoch, in the order taken.

    turn: what one is, as `turns.Turn` has it, and the seconds of its opening step, the median.
    """

    contestant: str
    status: str = "ok"
    note: str = ""
    samples: list[float] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    slice: float = 0.0
    turn: dict[str, Any] = field(default_factory=dict)
    first_call: float = 0.0
    floor: dict[str, Any] = field(default_factory=dict)
    parity: dict[str, float] = field(default_factory=dict)
    ledger: dict[str, Any] = field(default_factory=dict)
    curve: list[dict[str, float | None]] = field(default_factory=list)

    def end(self, status: str, note: str) -> None:
        """No time for this one: what was measured before is dropped."""
        self.status, self.note = status, note
        self.samples, self.rounds, self.curve = [], [], []


@dataclass
class Racer:
    """A row that is racing: its process, its task, and how far it has come."""

    row: Row
    task: Task
    worker: Entrant
    images: int  # of an epoch
    patience: float = PATIENCE
    steps: int = 0
    epochs: int = 0  # that were marked
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    openings: list[float] = field(default_factory=list)

    @property
    def turn(self) -> int:
        """Steps of one turn."""
        return int(self.row.turn.get("steps", 0))

    def afresh(self, row: Row) -> "Racer":
        """The same process for another row, before its first turn."""
        return Racer(row, self.task, self.worker, self.images, self.patience)

    def ask(self, *question: Any) -> Any:
        """An answer of its process; None, and a row that says why, where it has failed."""
        try:
            return self.worker.ask(*question, patience=self.patience)
        except Failed as failure:
            self.fail(str(failure))
            return None

    def fail(self, note: str) -> None:
        """No time, and no process any more."""
        self.row.end("failed", note)
        self.worker.close()

    def run(self, number: int) -> None:
        """One turn, in the round of a number, which may be its last."""
        answer = self.ask("run")
        if answer is None:
            self.row.note = f"in round {number}: {self.row.note}"
            return
        seconds, opening, loss = answer
        if not math.isfinite(loss):
            self.fail(f"its loss became {loss} in round {number}")
            return
        self.row.samples.append(seconds * self.images / self.task.batch)
        self.row.rounds.append(number)
        self.steps += self.turn
        self.seconds += seconds * self.turn
        self.losses.append(loss)
        if opening is not None:
            self.openings.append(opening)

    def ready(
        self, steps: int, seconds: float, longer: bool = True, epoch: int | None = None
    ) -> None:
        """Let it plan its turns, and start over."""
        self.row.turn = self.ask("ready", steps, seconds, longer, epoch) or {}

    def close_ledger(self) -> None:
        """Ask how it computed and what memory it had, for its row."""
        self.row.ledger = (self.ask("ledger") or {}) | self.row.ledger
        self.row.turn["opening_seconds"] = median(self.openings) if self.openings else None


class Gate:
    """Builds contestants for a task, and lets in those whose first steps are right.

    >>> from pareo import nn
    >>> from pareo.lab.contestants import CONTESTANTS
    >>> task = Task(nn.Sequential([nn.Dense(3)], (4,), "small"), batch=2)
    >>> with ExitStack() as stack:
    ...     gate = Gate(stack, task, images=64)
    ...     racer = gate.admit(Row("ours"), CONTESTANTS["pareo-vectorized"], steps=4, seconds=1.0)
    ...     racer.run(1)
    ...     len(racer.row.samples)
    1
    """

    def __init__(
        self,
        stack: ExitStack,
        task: Task,
        images: int,
        precision: str = "float32",
        patience: float = PATIENCE,
        runner: type[Runner] = Runner,
        exact: Callable[[Task, str], Any] = reference,
    ) -> None:
        """Processes end with the stack; `images` are those of an epoch; `exact` judges a task."""
        self._stack, self._task, self._images = stack, task, images
        self._precision, self._patience = precision, patience
        self._runner, self._exact = runner, exact
        self._judges: dict[int, Worker] = {}
        self._begun: dict[str, tuple[Task, Entrant]] = {}

    def begin(self, row: Row, contestant: Contestant) -> None:
        """Let a contestant be built, and take its first steps, while others are: `admit` waits."""
        self._begun[row.contestant] = self._built(row, contestant)

    def _built(self, row: Row, contestant: Contestant) -> tuple[Task, Entrant]:
        """A process at work on its first steps, and its task."""
        task = self._task
        if contestant.images:
            task = replace(task, batch=contestant.images)
            row.note = f"timed on steps of {contestant.images} images"
        worker = Entrant(self._runner, contestant, task, threads=self._task.threads)
        self._stack.enter_context(worker)
        worker.put("agree")
        return task, worker

    def admit(
        self, row: Row, contestant: Contestant, steps: int, seconds: float, longer: bool = True
    ) -> Racer | None:
        """A contestant ready for turns of so many steps, fewer where they would take longer.

        Turns may be `longer`, too, where they are so short that what a call costs would count. None
        where it was refused or failed: then the row says why.
        """
        begun = self._begun.pop(row.contestant, None)
        task, worker = begun or self._built(row, contestant)
        racer = Racer(row, task, worker, self._images, self._patience)
        try:
            differs, row.parity = agreement(task, worker, self._judge(task), self._patience)
        except Failed as failure:
            racer.fail(str(failure))
            return None
        if differs:
            row.end("refused", differs)
            worker.close()
            return None
        epoch = math.ceil(self._images / task.batch)
        if contestant.images:  # whose turns are no parts of an epoch in any race
            racer.ready(1, seconds, longer=True)
        else:
            racer.ready(steps, seconds, longer, epoch)
        if row.status == "ok":
            row.first_call = racer.ask("first_call") or 0.0
        if row.status != "ok":
            return None
        row.slice = racer.turn / epoch
        return racer

    def audit(self, racer: Racer) -> None:
        """Refuse a racer that no longer trains, when all rounds are over; its row says how."""
        found = racer.ask("audit")
        if found is None:
            racer.row.note = f"after the last round: {racer.row.note}"
            return
        try:
            exact = self._judge(racer.task).ask("audit", racer.task.batch)
        except Failed as failure:  # which is not the contestant's
            racer.row.end("failed", f"no reference to agree with: {failure}")
            return
        if refusal := audit.refusal(found, exact, self._precision):
            racer.row.end("refused", refusal)
            racer.worker.close()

    def _judge(self, task: Task) -> Worker:
        if task.batch not in self._judges:
            judge = Worker(_judging, self._exact, task, self._precision, threads=task.threads)
            self._judges[task.batch] = self._stack.enter_context(judge)
        return self._judges[task.batch]


def _judging(exact: Callable[[Task, str], Any], task: Task, precision: str) -> Callable[..., Any]:
    """One process for all that float64 knows: steps for the gate, and losses for the audit."""
    gate, losses = exact(task, precision), audit.reference(task)
    return lambda *asked: losses(asked[1]) if asked[0] == "audit" else gate(*asked)
