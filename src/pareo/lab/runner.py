"""A contestant at work in a process of its own: what a race can ask of it."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pareo.lab import memory
from pareo.lab.contestants import Contestant, Task
from pareo.lab.parity import Tolerance, by_chance, parity
from pareo.lab.processes import PATIENCE, Failed, Worker

GATE = 2  # steps that must agree
ATTEMPTS = 3  # at them, where there are kinks
SLOW = 20  # turns that one step may take and yet be tried again


class Runner:
    """A contestant with its task: `Worker(Runner, contestant, task).ask("run")` calls `run()`."""

    def __init__(self, contestant: Contestant, task: Task) -> None:
        self._start = time.perf_counter()
        self._task = task
        self._trainer = contestant.build(task)
        self._images = task.count()
        self._done, self._steps = 0, 1
        self._first_call = self._step_seconds = 0.0

    def __call__(self, question: str, *details: Any) -> Any:
        """The answer to a question, which is a method's name."""
        return getattr(self, question)(*details)

    def agree(self) -> list[tuple[float, dict[str, Any]]]:
        """The next steps, at first the first: each one's loss, and the parameters after it."""
        steps = []
        for _ in range(GATE):
            self._step_seconds, losses = self._timed(self._gate_order())
            steps.append((float(losses[0]), self._trainer.parameters()))
            if not self._first_call:
                self._first_call = time.perf_counter() - self._start
        return steps

    def settle(self, seconds: float) -> int:
        """Make a turn as many steps as take about so many seconds; their number."""
        self._steps = settled(lambda steps: self._train(steps)[0], seconds)
        return self._steps

    def ready(self, steps: int, seconds: float) -> int:
        """Make a turn so many steps, fewer if they took longer than so many seconds; their number.

        One such turn is run untimed, for a new length may be compiled anew; then all starts over.
        Where it was far shorter than it may be, as first steps are slow, a longer one follows. (On
        a card the second is captured, and slower than any after it.)
        """
        each = self._step_seconds
        for _ in range(3):
            self._steps = max(1, int(min(steps, seconds / each)))
            if each > SLOW * seconds:  # which is not because of something done once
                break
            took = self._train(self._steps)[0]
            if self._steps == steps or took > seconds / 2:
                break
            each = took / self._steps
        self.restart()
        return self._steps

    def restart(self) -> None:
        """Back to the first weights and the first batch."""
        self._trainer.load(self._task.parameters())
        self._done = 0

    def run(self) -> tuple[float, float]:
        """One turn: seconds a step, and the mean loss."""
        took, losses = self._train(self._steps)
        return took / self._steps, float(np.mean([float(loss) for loss in losses]))

    def parameters(self) -> dict[str, Any]:
        """The parameters now."""
        return self._trainer.parameters()

    def memory(self) -> int | None:
        """The most that it has had of a GPU's memory, where it tells."""
        tell = getattr(self._trainer, "peak_bytes", lambda: None)
        most: int | None = tell()
        return most

    def first_call(self) -> float:
        """Seconds from nothing to the end of the first step."""
        return self._first_call

    def ledger(self) -> dict[str, Any]:
        """What a fair reader asks; None is what the adapter's `facts` do not tell."""
        facts: dict[str, Any] = getattr(self._trainer, "facts", dict)()
        told = ("precision", "layout", "mode", "version", "first_layer_data_gradient")
        return {
            **dict.fromkeys(told),
            "threads": self._task.threads,
            "peak_memory_bytes": self.memory() or memory.peak(),
            "settings_tried": [],
            **facts,
        }

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
        start = time.perf_counter()
        losses = self._trainer.run(order)
        return time.perf_counter() - start, losses


def settled(run: Callable[[int], float], seconds: float) -> int:
    """How many steps take about so many seconds; a chunk of that length has run once, untimed.

    >>> settled(lambda steps: 0.01 * steps, seconds=0.4)
    40
    """
    steps = 1
    for _ in range(4):
        run(steps)  # a new length may be compiled anew
        took = run(steps)
        if took > seconds / 2:
            break
        steps = max(steps + 1, round(steps * seconds / max(took, 1e-7)))
    else:
        run(steps)
    return steps


def agreement(
    task: Task, worker: Worker, judge: Worker, allowed: Tolerance, patience: float = PATIENCE
) -> tuple[str, dict[str, float]]:
    """What differs in the first steps, which the worker was asked for, and how exact they were.

    GATE steps must be exact. Where the network has kinks, a step may be off by chance: rounding
    fell on the other side of one. Then more steps follow, from where it stands, until as many are
    exact: kinks lie elsewhere then, and a gradient that is wrong is wrong in every step.
    """
    error: dict[str, float] = {"steps": 0}

    def exact(step: int, parameters: dict[str, Any]) -> Any:
        try:
            return judge.ask(step, parameters)
        except Failed as failure:  # which is not the contestant's
            raise Failed(f"no reference to agree with: {failure}") from None

    refusals: list[str] = []
    before = task.parameters()
    steps = worker.get(patience)
    for attempt in range(ATTEMPTS):
        if attempt:
            steps = worker.ask("agree", patience=patience)
        for loss, after in steps:
            number = int(error["steps"])
            error["steps"] += 1
            found: dict[str, float] = {}
            differs = parity(task, [(loss, after)], exact, found, allowed, number, before)
            for name, value in found.items():
                error[name] = max(error.get(name, 0.0), value)
            before = after
            if differs and not by_chance(task, found, allowed):
                return differs, error
            refusals += [differs] if differs else []
        if error["steps"] - len(refusals) >= GATE:
            return "", error
    return f"{refusals[0]}; {len(refusals)} of {error['steps']:g} steps are not exact", error
