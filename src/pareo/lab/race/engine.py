"""A race: all contestants train one network on the same batches, in turns.

Each contestant has a process of its own and is idle while others run. Only contestants whose first
steps agree with float64 are timed. One that crashes or hangs is a row, and the others go on.
"""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pareo.device import Device
from pareo.lab.contestants import Contestant, Task, losses, own_layers
from pareo.lab.contestants.registry import SLOW_TO_BUILD
from pareo.lab.experiment import statistics
from pareo.lab.experiment.admission import Admission
from pareo.lab.experiment.experiment import Experiment
from pareo.lab.experiment.gate.parity import reference
from pareo.lab.experiment.rounds import rounds
from pareo.lab.experiment.runner import Runner
from pareo.lab.experiment.running import Running
from pareo.lab.machine.floors import floor, place_of
from pareo.lab.race import result
from pareo.lab.race.best_setting import Trial
from pareo.lab.race.result import Point, Row
from pareo.training.evaluate import Evaluator
from pareo.training.own_loss import name_of
from pareo.training.step import step_program

FRAMEWORKS = ("torch", "jax", "tensorflow", "pytensor", "tinygrad")
SLICED_ROUNDS = statistics.FEWEST  # of one that is too slow for a batch: enough to compare it


@dataclass(frozen=True)
class Rules:
    """How a race goes.

    share: of an epoch, trained in one turn, which is longer where what a call costs would count
        (see `turns`). turn: seconds that it may take, else it is shorter.
    rounds: that there are at least, if the time allows it.
    epochs: how many everyone trains; without, rounds end when times are known well.
    accuracy: rounds also end when everyone has reached it.
    seconds: for rounds, after which none begins; building before them takes its own time.
    patience: seconds without an answer after which a contestant counts as hanging.
    untried: settings of frameworks that are too slow to build for this race.
    together: build everyone at once, for machines with many cores; first calls take longer then.
    """

    share: float = 1.0
    turn: float = 2.0
    rounds: int = statistics.ROUNDS
    epochs: int | None = None
    accuracy: float | None = None
    seconds: float = 600.0
    patience: float = 600.0
    untried: tuple[str, ...] = ()
    together: bool = False

    def training(self, epochs: int | None, accuracy: float | None) -> "Rules":
        """The same, for so many epochs, or until an accuracy: turns are whole parts of an epoch.

        >>> Rules().training(epochs=5, accuracy=None).share
        0.2
        """
        if epochs is None and accuracy is None:
            return self
        share = 1 / math.ceil(self.rounds / epochs) if epochs else self.share
        seconds = math.inf if epochs else self.seconds
        return replace(
            self, epochs=epochs, accuracy=accuracy, share=share, turn=math.inf, seconds=seconds
        )

    @staticmethod
    def asked(
        quick: bool,
        epochs: int | None,
        accuracy: float | None,
        seconds: float | None,
        together: bool = False,
    ) -> "Rules":
        """The rules for these options of `pareo race`."""
        rules = (QUICK if quick else Rules()).training(epochs, accuracy)
        rules = replace(rules, together=together)
        return rules if seconds is None else replace(rules, seconds=seconds)


# A first compilation takes minutes where others take most of the processor's time.
QUICK = Rules(share=0.1, turn=0.5, seconds=100.0, patience=240.0, untried=SLOW_TO_BUILD)


class OneTask(Experiment):
    """An experiment on one task, with a row for each contestant: a race, or a study of kernels."""

    def __init__(
        self,
        task: Task,
        contestants: dict[str, Contestant],
        precision: str,
        watch: Callable[[Any], None],
    ) -> None:
        super().__init__(contestants, precision, task.threads, watch)
        self.task, self.images = task, task.count()
        self.flops = step_program(task.network, task.batch, task.recipe).flops
        self.rows = {name: Row(name) for name in contestants}

        @cache
        def refusals(framework: str | None) -> str:
            if framework not in FRAMEWORKS:
                return ""
            return own_layers.refusal(task, framework) or losses.refusal(task, framework)

        for name, contestant in contestants.items():
            if said := refusals(contestant.needs):
                self.missing.setdefault(name, said)
        for name, reason in self.missing.items():
            self.rows[name].end("missing", reason)

    def settings(self) -> dict[str, Any]:
        """The fields of a result that say what was trained."""
        return {
            "network": self.task.network.name,
            "data": self.task.trained_on,
            "batch": self.task.batch,
            "precision": self.precision,
            "threads": self.task.threads,
            "images": self.images,
            "flops": self.flops,
        }

    def measure_floors(self) -> None:
        """Measure this machine, and with that the floor of every row."""
        self.measure(self.places(self.present()))
        for name, contestant in self.contestants.items():
            self.rows[name].floor = floor(
                self.task, self.images, self.flops, place_of(contestant), self.peaks, self.precision
            )


class Race(OneTask):
    """A race under way: `run` it, and look at `rows`, `doing` and `round` while it runs.

    runner, exact: what stands in each contestant's process, and what judges its first steps.
    closes: whether there is a gate at the end, which takes seconds for each contestant.
    """

    closes = True
    runner: type[Runner] = Runner
    exact: Callable[[Task, str], Any] = staticmethod(reference)

    def __init__(
        self,
        task: Task,
        contestants: dict[str, Contestant],
        rules: Rules,
        precision: str = "float32",
        watch: Callable[["Race"], None] = lambda race: None,
    ) -> None:
        super().__init__(task, contestants, precision, watch)
        self.rules, self.round = rules, 0
        self._running: dict[str, Running[Row]] = {}
        self._same: dict[str, Row] = {}  # the row that a framework's best setting has of its own
        self._test = task.test_data()
        self._evaluate: Evaluator | None = None
        self._building: float | None = None  # seconds until the first round
        self._racing: float | None = None  # seconds of rounds
        self._first_round = math.inf

    @property
    def left(self) -> float:
        """Seconds until no new round begins."""
        spent = max(0.0, time.perf_counter() - self._first_round)
        return self.rules.seconds - spent

    def run(self) -> result.RaceResult:
        """Admit contestants, let them train in turns, and return the result.

        After Ctrl-C, `result` is what there was by then.
        """
        self.begin()
        self._run(time.perf_counter())
        if self.long:
            self.measure_floors()
        return self.result()

    def _run(self, began: float) -> None:
        with ExitStack() as stack:
            self.measure_floors()
            admission = Admission[Row](
                stack, self.task, self.images, self.precision, self.rules.patience, self.runner,
                self.exact,
            )  # fmt: skip
            try:
                self._admit(admission)
                self._first_round = time.perf_counter()
                self._building = self._first_round - began
                rounds(self._in_race, self._turn, self._over, self._begin_round)
                self._racing = time.perf_counter() - self._first_round
                for running in self._in_race():
                    self.say(f"{running.entry.contestant}: does it still train?")
                    if self.closes:
                        admission.keep_end(running)
                    admission.finish(running)
                if self.closes:
                    admission.close(self._in_race(), self.say)
            except KeyboardInterrupt:
                self._racing = max(0.0, time.perf_counter() - self._first_round)
                for running in self._in_race():
                    running.interrupt()
                raise
            finally:
                self._settle()

    def result(self) -> result.RaceResult:
        """Everything that is known so far."""
        header = self.header(result.RaceResult, "race")
        return result.RaceResult(
            **header, **self.settings(), loss=name_of(self.task.loss),
            building_seconds=self._building, rounds_seconds=self._racing,
            rows=[*self.rows.values()],
        )  # fmt: skip

    def _admit(self, admission: Admission[Row]) -> None:
        """Build everyone; frameworks at their best last, when more contestants are in the race."""
        steps = max(1, math.ceil(self.rules.share * self.images / self.task.batch))
        longer = self.rules.epochs is None and self.rules.accuracy is None  # else epochs count

        def admit(row: Row, contestant: Contestant) -> Running[Row] | None:
            self.say(f"{row.contestant}: building, first steps and the same in float64")
            chosen = contestant.in_precision(self.precision)
            running = admission.admit(row, chosen, steps, self.rules.turn, longer)
            if running is not None:
                row.slice = row.turn.steps / math.ceil(running.scale)
            return running

        present = self.present()
        if self.rules.together:
            for name, contestant in present.items():
                if not contestant.tries:
                    admission.begin(self.rows[name], contestant)
        for name, contestant in sorted(present.items(), key=lambda item: bool(item[1].tries)):
            row = self.rows[name]
            if not contestant.tries:
                running = admit(row, contestant)
            else:
                out = {name: row for name, row in self.rows.items() if row.status != "ok"}
                trial = Trial(row, admit, self._running, out, self.rules.untried, self.say)
                running = trial.fastest(contestant)
            if running is not None and running.entry is not row:
                self._same[name] = running.entry
            elif running is not None:
                self._running[name] = running

    def _in_race(self) -> list[Running[Row]]:
        return [running for running in self._running.values() if running.ok]

    def _begin_round(self, number: int) -> None:
        self.round = number

    def _turn(self, running: Running[Row], number: int) -> None:
        """One turn; a contestant that is too slow for a whole batch has only a few."""
        sliced = running.task is not self.task
        if sliced and number > SLICED_ROUNDS:
            return
        self.say(f"{running.entry.contestant} is running")
        running.run(number)
        if not sliced and running.ok:
            self._mark_epoch(running)

    def _settle(self) -> None:
        """Copy the row of a setting to the framework's best that it stands for."""
        for name, same in self._same.items():
            row, tried = self.rows[name], self.rows[name].ledger["settings_tried"]
            note = row.note if same.status == "ok" else same.note
            ledger = {**same.ledger, "settings_tried": tried}
            self.rows[name] = replace(same, contestant=name, note=note, ledger=ledger)

    def _mark_epoch(self, running: Running[Row]) -> None:
        """Add a point to the learning curve where a turn has ended with an epoch."""
        epoch, beyond = divmod(running.steps, math.ceil(running.scale))
        if beyond:
            return
        steps = sum(length for _, length in running.losses)
        loss = sum(mean * length for mean, length in running.losses) / steps
        running.losses = []
        found = running.ask("parameters")
        if found is not None:
            accuracy = self._accuracy(found)
            point = Point(epoch=epoch, seconds=running.seconds, loss=loss, accuracy=accuracy)
            running.entry.curve.append(point)

    def _accuracy(self, parameters: dict[str, Any]) -> float | None:
        """On the test images, by one program for everyone; None where there are none."""
        if self._test is None:
            return None
        if self._evaluate is None:
            place = Device("compiled", threads=self.task.threads)
            self._evaluate = Evaluator(self.task.network, place)
        return self._evaluate(parameters, *self._test, self.task.loss)[1]

    def _over(self, number: int, took: float) -> bool:
        """Whether this round, which took so many seconds, was the last."""
        self._settle()
        rows = [running.entry for running in self._in_race() if running.task is self.task]
        wanted = self.rules.accuracy
        if self.rules.epochs is not None:
            done = all(len(row.curve) >= self.rules.epochs for row in rows)
        elif wanted is not None:
            done = all(any((p.accuracy or 0) >= wanted for p in row.curve) for row in rows)
        else:
            done = number >= self.rules.rounds and all(
                statistics.enough(row.samples) for row in rows
            )
        return done or not self._in_race() or self.left < took
