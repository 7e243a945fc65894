"""Into an experiment: contestants in processes of their own, each through the gate, then ready."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Generic

from pareo.lab.contestants import Contestant, Task
from pareo.lab.experiment import closing
from pareo.lab.experiment.answers import Entrant
from pareo.lab.experiment.conditions import Conditions
from pareo.lab.experiment.gate.agreement import agreement
from pareo.lab.experiment.gate.judge import judging
from pareo.lab.experiment.gate.parity import reference
from pareo.lab.experiment.runner import Runner
from pareo.lab.experiment.running import E, Running
from pareo.lab.experiment.worker import PATIENCE, Failed, Worker


class Admission(Generic[E]):
    """Builds contestants for one task, and admits those whose first steps are right.

    >>> from pareo import nn
    >>> from pareo.lab.contestants import CONTESTANTS
    >>> from pareo.lab.race.result import Row
    >>> task = Task(nn.Sequential([nn.Dense(3)], (4,), "small"), batch=2)
    >>> with ExitStack() as stack:
    ...     admission = Admission(stack, task, images=64)
    ...     ours = admission.admit(Row("ours"), CONTESTANTS["pareo-vectorized"], 4, seconds=1.0)
    ...     ours.run(1)
    ...     len(ours.entry.samples)
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
        self._conditions: dict[bool, Conditions] = {}

    def begin(self, entry: E, contestant: Contestant) -> None:
        """Build a contestant and let it take its first steps while others do: `admit` waits."""
        self._begun[entry.contestant] = self._built(entry, contestant)

    def _built(self, entry: E, contestant: Contestant) -> tuple[Task, Entrant]:
        """A process at work on its first steps, and its task."""
        task = self._task
        if contestant.images:
            task = replace(task, batch=contestant.images)
            entry.note = f"timed on steps of {contestant.images} images"
        self._conditions_of(contestant)
        worker = Entrant(self._runner, contestant, task, threads=self._task.threads)
        self._stack.enter_context(worker)
        worker.put("agree")
        return task, worker

    def admit(
        self, entry: E, contestant: Contestant, steps: int, seconds: float, longer: bool = True
    ) -> Running[E] | None:
        """A contestant ready for turns of so many steps, fewer where they would take longer.

        Turns may be `longer`, too, where they are so short that the cost of a call would count.
        None where it was refused or failed: the entry's note says why.
        """
        begun = self._begun.pop(entry.contestant, None)
        task, worker = begun or self._built(entry, contestant)
        running = Running(entry, task, worker, self._images / task.batch, self._patience)
        running.conditions = self._conditions_of(contestant)
        try:
            differs, entry.parity = agreement(task, worker, self._judge(task), self._patience)
        except Failed as failure:
            running.fail(failure)
            return None
        if differs:
            running.refuse(differs)
            return None
        if contestant.images:  # its turns are not parts of an epoch in any race
            running.prepare(1, seconds, longer=True)
        else:
            running.prepare(steps, seconds, longer, math.ceil(self._images / task.batch))
        return running if running.ok else None

    def keep_end(self, running: Running[E]) -> None:
        """Keep where its training has ended for `close`: more turns follow in `finish`."""
        closing.keep(running)

    def finish(self, running: Running[E]) -> None:
        """When all rounds are over: how it computed, and whether it still trains."""
        running.finish(self._judge(running.task), self._precision)

    def close(self, everyone: list[Running[E]], say: Callable[[str], None]) -> None:
        """After `finish`: refuse those that did not train as the task says."""
        for running in everyone:
            say(f"{running.entry.contestant}: the gate at the end")
            closing.close(running, self._judge(running.task), self._precision)
        same = [running for running in everyone if running.task is self._task]
        if same:
            closing.close_field(same, self._judge(self._task), self._precision, say)

    def _conditions_of(self, contestant: Contestant) -> Conditions:
        """What is read of a contestant's device; an idle GPU before the first of them is built."""
        if contestant.gpu not in self._conditions:
            found = self._conditions[contestant.gpu] = Conditions.of(contestant.gpu)
            found.rest()
        return self._conditions[contestant.gpu]

    def _judge(self, task: Task) -> Worker:
        if task.batch not in self._judges:
            judge = Worker(judging, self._exact, task, self._precision, threads=task.threads)
            self._judges[task.batch] = self._stack.enter_context(judge)
        return self._judges[task.batch]
