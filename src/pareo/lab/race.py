"""The race: everyone trains one network on the same batches, in turn, and is timed if it is right.

Each contestant lives in a process of its own and is idle while others run. Whoever's first steps
do not agree with float64 gets no time; whoever crashes or hangs is a row, and the others go on.
"""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

from pareo import __version__, machine
from pareo.device import Device, why_unavailable
from pareo.lab import measure, results
from pareo.lab.contestants import Contestant, Task
from pareo.lab.contestants.registry import known
from pareo.lab.parity import TOLERANCES, reference
from pareo.lab.processes import Failed, Worker
from pareo.lab.runner import GATE, Runner, agreement
from pareo.lab.train_speed import LARGE, LARGE_RATE, network_of, plain
from pareo.training import floor
from pareo.training.evaluate import Evaluator
from pareo.training.step import step_program

# With these, plain SGD learns MNIST within a few epochs.
RATES = {"papers-cnn": 1.0}
RATE = 0.1
TRIAL = 2  # turns of each setting of a framework, before the fastest is chosen
SLICED_ROUNDS = measure.FEWEST  # of one that is too slow for a batch: enough to compare it


@dataclass(frozen=True)
class Rules:
    """How a race goes.

    share: of an epoch, trained in one turn. turn: seconds that it may take, else it is shorter.
    epochs: how many everyone trains; without, rounds end when times are known well.
    accuracy: rounds also end when everyone has reached it. seconds: when the last round begins.
    patience: seconds without an answer after which a contestant counts as hanging.
    untried: settings of frameworks that are too slow to build for this race.
    """

    share: float = 1.0
    turn: float = 60.0
    epochs: int | None = None
    accuracy: float | None = None
    seconds: float = 600.0
    patience: float = 600.0
    untried: tuple[str, ...] = ()


QUICK = Rules(share=0.1, turn=2.0, seconds=140.0, patience=60.0, untried=("torch-compile",))


@dataclass
class Row:
    """What became of one contestant; samples are seconds an epoch, in the order taken."""

    contestant: str
    status: str = "ok"
    note: str = ""
    samples: list[float] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    slice: float = 0.0
    first_call: float = 0.0
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
    worker: Worker
    turn: int = 0  # steps
    steps: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)


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
        self._contestants = {n: c.in_precision(precision) for n, c in contestants.items()}
        here = any(c.gpu and not c.missing() for c in contestants.values())
        self._on_card = here and why_unavailable("cuda") is None
        self._watch = watch
        self._images = len(task.data()[1])
        self._flops = step_program(task.network, task.batch).flops
        self._limits: list[tuple[float, float]] = []
        self._judges: dict[int, Worker] = {}
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
            self._stack = stack
            limits = stack.enter_context(Worker(ceilings, self._device()))
            self._say("measuring this machine's limits")
            self._measure(limits)
            racers = self._entered()
            self._race(racers)
            for racer in racers:
                if racer.row.status == "ok":
                    self._close_ledger(racer)
            self._measure(limits)
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
            "floor": self.floor(),
            "rows": [asdict(row) for row in self.rows.values()],
        }
        return results.checked(plain(found), "this race")

    def settings(self) -> dict[str, Any]:
        """What everyone trains, and how."""
        return {
            "network": self.task.network.name,
            "batch": self.task.batch,
            "precision": self.precision,
            "threads": self.task.threads,
            "images": self._images,
            "flops": self._flops,
        }

    def floor(self) -> dict[str, Any]:
        """The least seconds of an epoch: its FLOPs at the measured peak, or its bytes."""
        peak = max((peak for peak, _ in self._limits), default=math.nan)
        bandwidth = max((speed for _, speed in self._limits), default=math.nan)
        arithmetic, moving = self._flops / peak, self.task.least_bytes() / bandwidth
        return {
            "seconds_per_epoch": max(arithmetic, moving) * self._images / self.task.batch,
            "why": "arithmetic" if arithmetic >= moving else "bandwidth",
            "peak_flops": peak,
            "bandwidth": bandwidth,
        }

    def _measure(self, limits: Worker) -> None:
        """How fast the machine is now; where that fails, the floor stays unknown."""
        with suppress(Failed):
            self._limits.append(limits.ask(patience=self.rules.patience))

    def _device(self) -> Device:
        if self._on_card:
            return Device("cuda", precision=self.precision)
        return Device("compiled", threads=self.task.threads)

    def _say(self, doing: str) -> None:
        self.doing = doing
        self._watch(self)

    def _entered(self) -> list[Racer]:
        """Those that are here, agree, and have run a turn to warm up."""
        found = []
        for name, contestant in self._contestants.items():
            row = self.rows[name]
            reason = contestant.missing()
            if self.precision != "float32" and not contestant.gpu:
                reason = f"it computes in float32 only, not in {self.precision}"
            if reason:
                row.end("missing", reason)
                continue
            enter = self._fastest if contestant.tries else self._admitted
            racer = enter(row, contestant)
            found += [racer] if racer else []
        return found

    def _admitted(self, row: Row, contestant: Contestant) -> Racer | None:
        """A contestant through the gate; None where it was refused or failed."""
        self._say(f"{row.contestant}: building, first steps")
        task, patience = self.task, self.rules.patience
        if contestant.images:
            task = replace(task, batch=contestant.images)
            row.note = f"timed on steps of {contestant.images} images"
        worker = self._stack.enter_context(
            Worker(Runner, contestant, task, threads=self.task.threads)
        )
        racer = Racer(row, task, worker)
        try:
            worker.put("agree")
            differs, row.parity = agreement(
                task, worker, self._judge(task), TOLERANCES[self.precision], patience
            )
            if not differs:
                row.parity["steps"] = GATE
                steps = max(1, round(self.rules.share * self._images / task.batch))
                wanted = 1 if contestant.images else steps
                racer.turn = worker.ask("ready", wanted, self.rules.turn, patience=patience)
                row.slice = min(1.0, racer.turn * task.batch / self._images)
                row.first_call = worker.ask("first_call")
                return racer
            row.end("refused", differs)
        except Failed as failure:
            row.end("failed", str(failure))
        worker.close()
        return None

    def _judge(self, task: Task) -> Worker:
        if task.batch not in self._judges:
            judge = Worker(reference, task, threads=task.threads)
            self._judges[task.batch] = self._stack.enter_context(judge)
        return self._judges[task.batch]

    def _fastest(self, row: Row, contestant: Contestant) -> Racer | None:
        """The fastest of a framework's settings; the row's ledger will name all that were tried."""
        everyone = known()
        tried = {name: Row(name) for name in contestant.tries}
        racers = []
        for name, attempt in tried.items():
            if reason := everyone[name].missing():
                attempt.end("missing", reason)
            elif name in self.rules.untried:
                attempt.end("missing", "not tried: it takes long to build")
            elif racer := self._admitted(attempt, everyone[name].in_precision(self.precision)):
                racers.append(racer)
        for turn in range(TRIAL):
            for racer in racers:
                self._say(f"{row.contestant}: trying {racer.row.contestant}")
                self._turn(racer, turn)
        row.ledger["settings_tried"] = [_tried(attempt) for attempt in tried.values()]
        fair = [racer for racer in racers if racer.row.samples]
        if not fair:
            row.end("failed", "none of its settings could be raced; the ledger says why")
            return None
        best = min(fair, key=lambda racer: min(racer.row.samples))
        for racer in racers:
            if racer is not best:
                racer.worker.close()
        best.worker.ask("restart")
        row.note = f"its fastest setting: {best.row.contestant}"
        row.parity, row.slice = best.row.parity, best.row.slice
        row.first_call = best.row.first_call
        return Racer(row, best.task, best.worker, best.turn)

    def _race(self, racers: list[Racer]) -> None:
        """Rounds, until all is known or the time is up."""
        for self.round in count(1):
            began = time.perf_counter()
            for racer in racers:
                sliced = racer.task is not self.task
                if racer.row.status != "ok" or (sliced and self.round > SLICED_ROUNDS):
                    continue
                self._say(f"{racer.row.contestant} is running")
                self._turn(racer, self.round)
                if not sliced and racer.row.status == "ok":
                    self._mark_epoch(racer)
            if self._over(racers, time.perf_counter() - began):
                return

    def _turn(self, racer: Racer, number: int) -> None:
        """One turn of one contestant, which may be its last."""
        row = racer.row
        try:
            seconds, loss = racer.worker.ask("run", patience=self.rules.patience)
        except Failed as failure:
            row.end("failed", f"in round {number}: {failure}")
            racer.worker.close()
            return
        if not math.isfinite(loss):
            row.end("failed", f"its loss became {loss} in round {number}")
            racer.worker.close()
            return
        row.samples.append(seconds * self._images / racer.task.batch)
        row.rounds.append(number)
        racer.steps += racer.turn
        racer.seconds += seconds * racer.turn
        racer.losses.append(loss)

    def _mark_epoch(self, racer: Racer) -> None:
        """A point of the curve, where an epoch has just been completed."""
        epoch = racer.steps // math.ceil(self._images / self.task.batch)
        curve = racer.row.curve
        if epoch <= len(curve):
            return
        loss, racer.losses = sum(racer.losses) / len(racer.losses), []
        try:
            found = racer.worker.ask("parameters", patience=self.rules.patience)
        except Failed as failure:
            racer.row.end("failed", str(failure))
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

    def _over(self, racers: list[Racer], last: float) -> bool:
        """Whether this round, which took so many seconds, was the last."""
        rows = [r.row for r in racers if r.row.status == "ok" and r.task is self.task]
        rules = self.rules
        if rules.epochs is not None:
            done = self.round * rules.share >= rules.epochs
        elif rules.accuracy is not None:
            wanted = rules.accuracy
            done = all(any((p["accuracy"] or 0) >= wanted for p in row.curve) for row in rows)
        else:
            done = all(measure.enough(row.samples) for row in rows)
        return done or self.left < last

    def _close_ledger(self, racer: Racer) -> None:
        try:
            found = racer.worker.ask("ledger", patience=self.rules.patience)
        except Failed as failure:
            racer.row.end("failed", str(failure))
            return
        racer.row.ledger = found | racer.row.ledger


def task_for(name: str, batch: int, threads: int, size: int = 224) -> Task:
    """The task of a race by the network's name; AlexNet and GoogLeNet on images of a size.

    >>> task_for("papers-cnn", 128, threads=2).rate
    1.0
    """
    rate = LARGE_RATE if name in LARGE else RATES.get(name, RATE)
    return Task(network_of(name, size), batch, threads, rate)


def ceilings(device: Device) -> Callable[[], tuple[float, float]]:
    """Measures anew each time it is asked: FLOP/s of a product, bytes a second of a copy."""

    def answer() -> tuple[float, float]:
        if device.name == "cuda":
            return floor.peak(device), floor.card_bandwidth(device)
        peak = floor.peak(device, reached=math.inf)
        return peak, floor.copy_bandwidth(device.threads)

    return answer


def _tried(row: Row) -> dict[str, Any]:
    """What a trial's row says in the ledger."""
    best = min(row.samples, default=None)
    return {"setting": row.contestant, "seconds_per_epoch": best, "note": row.note}
