"""The race: everyone trains one network on the same batches, in turn, and is timed if it is right.

Each contestant lives in a process of its own and is idle while others run. Whoever's first steps
do not agree with float64 gets no time; whoever crashes or hangs is a row, and the others go on.
"""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

from pareo import __version__, machine
from pareo.device import Device
from pareo.lab.contestants import Contestant, Task
from pareo.lab.contestants.registry import SLOW_TO_BUILD
from pareo.lab.experiment import results, statistics
from pareo.lab.experiment.admission import Gate, Racer, Row
from pareo.lab.experiment.best_setting import Trial
from pareo.lab.machine.floors import Floors, place_of
from pareo.training.evaluate import Evaluator

SLICED_ROUNDS = statistics.FEWEST  # of one that is too slow for a batch: enough to compare it


@dataclass(frozen=True)
class Rules:
    """How a race goes.

    share: of an epoch, trained in one turn, which is longer where what a call costs would count
        (see `turns`). turn: seconds that it may take, else it is shorter.
    rounds: that there are at least, if the time allows it.
    epochs: how many everyone trains; without, rounds end when times are known well.
    accuracy: rounds also end when everyone has reached it. seconds: when the last round begins.
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


QUICK = Rules(share=0.1, turn=0.5, seconds=140.0, patience=60.0, untried=SLOW_TO_BUILD)


class Race:
    """A race under way: `run` it, and look at `rows`, `doing` and `round` while it runs."""

    def __init__(
        self,
        task: Task,
        contestants: dict[str, Contestant],
        rules: Rules,
        precision: str = "float32",
        watch: Callable[["Race"], None] = lambda race: None,
    ) -> None:
        self.task, self.rules, self.precision = task, rules, precision
        self.rows = {name: Row(name) for name in contestants}
        self.doing, self.round = "", 0
        self._contestants = contestants
        self._watch = watch
        self._images = task.count()
        self._floors = Floors(task, self._images, precision)
        self._racers: dict[str, Racer] = {}
        self._same: dict[str, Row] = {}  # a framework's best that is a row of its own, too
        self._idle_cores: float | None = None
        self._test = task.test_data()
        self._evaluate: Evaluator | None = None
        self._started = time.perf_counter()

    @property
    def left(self) -> float:
        """Seconds until no new round begins."""
        return self._started + self.rules.seconds - time.perf_counter()

    def run(self) -> dict[str, Any]:
        """Let everyone agree, then train in turn; the result."""
        self._idle_cores = machine.idle_cores()
        self._started = time.perf_counter()
        with ExitStack() as stack:
            here = {name: c for name, c in self._contestants.items() if self._is_here(name, c)}
            self._measure(here)
            gate = Gate(stack, self.task, self._images, self.precision, self.rules.patience)
            self._enter(gate, here)
            self._race()
            self._finish(gate)
        self._measure(here)
        return self.result()

    def result(self) -> dict[str, Any]:
        """Everything that is known so far, as JSON has it: docs/race-json.md says what is what."""
        found = {
            "schema": results.SCHEMA,
            "kind": "race",
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": {**machine.describe(), "idle_cores": self._idle_cores},
            "versions": {"pareo": __version__, **machine.libraries()},
            **self.settings(),
            "rows": [asdict(row) for row in self.rows.values()],
        }
        return results.checked(results.plain(found), "this race")

    def settings(self) -> dict[str, Any]:
        """What everyone trains, and how."""
        return {
            "network": self.task.network.name,
            "data": self.task.trained_on,
            "batch": self.task.batch,
            "precision": self.precision,
            "threads": self.task.threads,
            "images": self._images,
            "flops": self._floors.flops,
        }

    def _measure(self, here: dict[str, Contestant]) -> None:
        """How fast this machine is, and with it everyone's floor."""
        self._say("measuring this machine's limits")
        self._floors.measure({place_of(contestant) for contestant in here.values()})
        for name, contestant in self._contestants.items():
            self.rows[name].floor = self._floors.of(place_of(contestant))

    def _say(self, doing: str) -> None:
        self.doing = doing
        self._watch(self)

    def _is_here(self, name: str, contestant: Contestant) -> bool:
        """Whether a contestant can race; where not, its row says why."""
        reason = contestant.missing()
        if self.precision != "float32" and not contestant.gpu:
            reason = f"it computes in float32 only, not in {self.precision}"
        if reason:
            self.rows[name].end("missing", reason)
        return not reason

    def _enter(self, gate: Gate, here: dict[str, Contestant]) -> None:
        """Everyone through the gate; frameworks at their best last, when more is in the race."""
        steps = max(1, math.ceil(self.rules.share * self._images / self.task.batch))
        longer = self.rules.epochs is None and self.rules.accuracy is None  # else epochs are marked

        def admit(row: Row, contestant: Contestant) -> Racer | None:
            self._say(f"{row.contestant}: building, first steps")
            told = contestant.in_precision(self.precision)
            return gate.admit(row, told, steps, self.rules.turn, longer)

        if self.rules.together:
            for name, contestant in here.items():
                if not contestant.tries:
                    gate.begin(self.rows[name], contestant.in_precision(self.precision))
        for name, contestant in sorted(here.items(), key=lambda item: bool(item[1].tries)):
            row = self.rows[name]
            if not contestant.tries:
                racer = admit(row, contestant)
            else:
                out = {name: row for name, row in self.rows.items() if row.status != "ok"}
                trial = Trial(row, admit, self._racers, out, self.rules.untried, self._say)
                racer = trial.fastest(contestant)
            if racer is not None and racer.row is not row:
                self._same[name] = racer.row
            elif racer is not None:
                self._racers[name] = racer

    def _racing(self) -> list[Racer]:
        return [racer for racer in self._racers.values() if racer.row.status == "ok"]

    def _race(self) -> None:
        """Rounds, until all is known or the time is up."""
        for self.round in count(1):
            began = time.perf_counter()
            for racer in self._racing():
                sliced = racer.task is not self.task
                if sliced and self.round > SLICED_ROUNDS:
                    continue
                self._say(f"{racer.row.contestant} is running")
                racer.run(self.round)
                if not sliced and racer.row.status == "ok":
                    self._mark_epoch(racer)
            self._settle()
            if self._over(time.perf_counter() - began):
                return

    def _finish(self, gate: Gate) -> None:
        """Everyone's ledger, and whether it still trains."""
        for racer in self._racing():
            self._say(f"{racer.row.contestant}: does it still train?")
            racer.close_ledger()
            if racer.row.status == "ok":
                gate.audit(racer)
        self._settle()

    def _settle(self) -> None:
        """What holds for a setting that is a row of its own holds where it is the best, too."""
        for name, same in self._same.items():
            row, tried = self.rows[name], self.rows[name].ledger["settings_tried"]
            note = row.note if same.status == "ok" else same.note
            ledger = {**same.ledger, "settings_tried": tried}
            self.rows[name] = replace(same, contestant=name, note=note, ledger=ledger)

    def _mark_epoch(self, racer: Racer) -> None:
        """A point of the curve, where an epoch has just been completed."""
        epoch = racer.steps // math.ceil(self._images / self.task.batch)
        curve = racer.row.curve
        if epoch <= racer.epochs:
            return
        racer.epochs = epoch
        loss, racer.losses = sum(racer.losses) / len(racer.losses), []
        found = racer.ask("parameters")
        if found is None:
            return
        accuracy = self._accuracy(found)
        point = {"epoch": epoch, "seconds": racer.seconds, "loss": loss, "accuracy": accuracy}
        curve.append(point)

    def _accuracy(self, parameters: dict[str, Any]) -> float | None:
        """On images that nobody trained on, by one program for everyone; None without such."""
        if self._test is None:
            return None
        if self._evaluate is None:
            place = Device("compiled", threads=self.task.threads)
            self._evaluate = Evaluator(self.task.network, place)
        return self._evaluate(parameters, *self._test)[1]

    def _over(self, last: float) -> bool:
        """Whether this round, which took so many seconds, was the last."""
        rows = [racer.row for racer in self._racing() if racer.task is self.task]
        wanted = self.rules.accuracy
        if self.rules.epochs is not None:
            done = all(len(row.curve) >= self.rules.epochs for row in rows)
        elif wanted is not None:
            done = all(any((p["accuracy"] or 0) >= wanted for p in row.curve) for row in rows)
        else:
            done = self.round >= self.rules.rounds and all(
                statistics.enough(row.samples) for row in rows
            )
        return done or not self._racing() or self.left < last
