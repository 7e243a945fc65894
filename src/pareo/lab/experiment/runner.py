"""A contestant in a process of its own: what an experiment can ask of it.

Answers must fit the types that the methods declare: `answers` checks them.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pareo.lab.contestants import Contestant, Task
from pareo.lab.experiment import answers
from pareo.lab.experiment.bounds import Amount, Natural, Positive
from pareo.lab.experiment.gate import audit, repeated_batch
from pareo.lab.experiment.turns import Turn, Wanted, planned
from pareo.lab.experiment.worker import Failed
from pareo.lab.machine import memory

GATE = 2  # steps that must agree
ORDER = 1 << 24  # images of a turn: their numbers must fit in memory


class Runner:
    """A contestant with its task: `Entrant(Runner, contestant, task).ask("run")` calls `run()`."""

    clock = staticmethod(time.perf_counter)

    def __init__(self, contestant: Contestant, task: Task) -> None:
        self._start = self.clock()
        self._task = task
        self._trainer = contestant.build(task)
        self._images = task.count()
        self._done, self._turn = 0, Turn.of(1)
        self._first_call = self._step_seconds = 0.0

    def __call__(self, question: str, *details: Any) -> Any:
        """The answer to a question, which is a method's name."""
        return getattr(self, question)(*details)

    def agree(self) -> list[tuple[float, dict[str, Any]]]:
        """The next steps of the gate: the loss of each, and the parameters after it."""
        if not self._first_call and self._task.has_gate_parameters:
            self._trainer.load(self._task.gate_parameters())
        steps = []
        for _ in range(GATE):
            self._step_seconds, losses = self._timed(self._gate_order())
            steps.append((_losses(losses, 1)[0], self.parameters()))
            if not self._first_call:
                self._first_call = self.clock() - self._start
        return steps

    def ready(
        self, steps: int, seconds: float, longer: bool = True, epoch: int | None = None
    ) -> Turn:
        """Plan a turn, as `turns.Wanted` describes it, then start over.

        A turn of each length has run untimed, because a new length may have to be compiled. (On a
        GPU the second call is captured, and slower than any after it.)
        """
        most = max(1, min(10**6, ORDER // self._task.batch)) if longer else steps
        wanted = Wanted(steps, seconds, longer, epoch, most)
        known: set[int] = set()

        def call(count: int) -> float:
            known.add(count)
            return self._train(count)[0]

        self._turn = planned(call, self._step_seconds, wanted).within(epoch)
        for length in self._turn.lengths():
            timed = max(1, length - self._turn.opening)
            if timed not in known and length != self._turn.steps:  # which was planned above
                call(timed)
                call(timed)
        self.restart()
        return self._turn

    def restart(self) -> None:
        """Return to the first weights and the first batch."""
        self._trainer.load(self._task.parameters())
        self._done = 0

    def run(self) -> tuple[Positive, Amount | None, float]:
        """One turn: seconds per step, seconds of the opening step or None, the mean loss."""
        length = self._turn.length(self._done)
        opening, took, losses = self._take(self._next(length))
        timed = length - (opening is not None)
        return self._turn.sample(took, timed), opening, float(np.mean(losses))

    def _take(self, order: Any) -> tuple[float | None, float, list[float]]:
        """A turn on these images: seconds of the opening step, seconds of the rest, all losses."""
        opening, losses = None, []
        rest = order
        if self._turn.opening and len(order) > 1:
            opening, found = self._timed(order[:1])
            losses, rest = _losses(found, 1), order[1:]
        took, found = self._timed(rest)
        return opening, took, losses + _losses(found, len(rest))

    def audit(self) -> audit.Audited:
        """Two more turns: whether parameters moved in one, and the losses to compare."""
        before = {path: np.array(a) for path, a in self.parameters().items()}
        losses = self._take(self._next(self._turn.steps))[2]
        after = self.parameters()
        moved = any(not np.array_equal(after[path], a) for path, a in before.items())
        moved = moved or max(map(abs, losses)) < audit.LEARNED
        losses = []
        self.restart()
        compared = max(2, min(audit.STEPS, self._turn.steps))  # a turn of one step takes long
        while len(losses) < compared:
            order = audit.order_of(self._task, self._images, self._turn.steps)
            losses += self._take(order)[2]
        return audit.Audited(moved, losses[:compared])

    def replay(
        self, first: int, steps: int, start: dict[str, Any] | None = None
    ) -> tuple[list[float], dict[str, Any]]:
        """A training from the first weights, in calls like its turns: losses, and parameters.

        first: the step whose batch comes first. start: other weights to begin with.
        """
        self._begin(start, first)
        losses: list[float] = []
        while len(losses) < steps:
            count = min(steps - len(losses), self._turn.steps)
            losses += _losses(self._trainer.run(self._next(count)), count)
        return losses, self.parameters()

    def blocks(self, first: int, count: int, size: int) -> list[dict[str, Any]]:
        """A training from the first weights: the parameters after each block of so many steps."""
        self._begin(None, first)
        found = []
        for _ in range(count):
            _losses(self._trainer.run(self._next(size)), size)
            found.append({path: np.array(a) for path, a in self.parameters().items()})
        return found

    def seed(self, seed: int, steps: int) -> tuple[list[float], dict[str, Any]]:
        """A short training from the weights and batches of a seed: all losses, and the end."""
        other = replace(self._task, seed=seed)
        self._trainer.load(other.parameters())
        losses = _losses(self._trainer.run(other.order(self._images, 0, steps)), steps)
        found = {path: np.array(a) for path, a in self.parameters().items()}
        self.restart()
        return losses, found

    def _begin(self, start: dict[str, Any] | None, first: int) -> None:
        self._trainer.load(self._task.parameters() if start is None else start)
        self._done = first

    def parameters(self) -> dict[str, Any]:
        """The parameters now."""
        found = self._trainer.parameters()
        if not isinstance(found, Mapping):
            raise Failed(f"parameters() returned a {type(found).__name__}, not a dict of arrays")
        return dict(found)

    def memory(self) -> Natural | None:
        """Peak bytes of GPU memory, where the adapter reports them."""
        peak: int | None = getattr(self._trainer, "peak_bytes", lambda: None)()
        return peak

    def first_call(self) -> Amount:
        """Seconds from nothing to the end of the first step."""
        return self._first_call

    def ledger(self) -> dict[str, Any]:
        """How it computed; None is what the adapter's `facts` do not report."""
        facts: Any = getattr(self._trainer, "facts", dict)()
        if not isinstance(facts, Mapping):
            raise Failed(f"facts() returned a {type(facts).__name__}, not a dict")
        return answers.ledger({
            **dict.fromkeys(answers.FACTS),
            "threads": self._task.threads,
            "peak_memory_bytes": self.memory() or memory.peak(),
            **facts,
        })  # fmt: skip

    def _gate_order(self) -> Any:
        """The images of the next step that must agree."""
        return self._next(1)

    def _next(self, steps: int) -> Any:
        order = self._task.order(self._images, self._done, steps)
        self._done += steps
        return order

    def _train(self, steps: int) -> tuple[float, Any]:
        return self._timed(self._next(steps))

    def _timed(self, order: Any) -> tuple[float, Any]:
        start = self.clock()
        losses = self._trainer.run(order)
        return self.clock() - start, losses


class Repeating(Runner):
    """A runner that the gate compares on a few images, repeated to fill the batch.

    So exact steps of a large batch, or of a large network, do not take minutes.
    """

    def _gate_order(self) -> Any:
        self._done += 1
        batch = self._task.batch
        return repeated_batch.chosen(
            repeated_batch.different(batch), self._done - 1, batch, self._images
        )


def _losses(found: Any, steps: int) -> list[float]:
    """The losses of a call, one for each step."""
    try:
        losses = [float(loss) for loss in found]
    except (TypeError, ValueError):
        raise Failed(f"run() returned a {type(found).__name__}, not a loss for each step") from None
    if len(losses) != steps:
        raise Failed(f"run() returned {len(losses)} losses for {steps} steps")
    return losses
