"""The study behind `pareo kernels`: the gate, turns as in a race, and steps under an instrument."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from pareo import __version__, machine
from pareo.errors import PareoError
from pareo.lab.contestants import Contestant, Task
from pareo.lab.experiment import results
from pareo.lab.experiment.admission import Gate, Racer, Row
from pareo.lab.experiment.gate import repeated_batch
from pareo.lab.experiment.worker import PATIENCE
from pareo.lab.kernels.classify import kind_of_operator
from pareo.lab.kernels.events import KINDS, MATRIX, Profile, rows
from pareo.lab.kernels.instruments import Watched
from pareo.lab.machine.floors import Floors, place_of
from pareo.lab.train_speed import plain
from pareo.machine import gpus
from pareo.training.step import step_program

TURN = 0.4  # seconds, about
TURNS = 6
LOOKS = 3  # of the instrument, between turns: the fastest is kept, the least disturbed
STEPS = (2, 40)  # under the instrument: at least, at most

ON_CPU = ("pareo-compiled", "torch", "jax")
ON_GPU = ("pareo-cuda", "torch-cuda", "jax-cuda")


def usual() -> list[str]:
    """Whose kernels are looked at unless others are named: on a GPU where there is one."""
    return list(ON_GPU if gpus() else ON_CPU)


class Study:
    """One network at one batch size: `run` it; `profiles` are then there for a trace.

    together: build everyone at once, for machines with many cores.
    """

    def __init__(
        self,
        task: Task,
        contestants: dict[str, Contestant],
        precision: str = "float32",
        patience: float = PATIENCE,
        together: bool = False,
        say: Callable[[str], None] = lambda doing: None,
    ) -> None:
        for name, contestant in contestants.items():
            if contestant.tries:
                raise PareoError(
                    f"kernels are those of one setting: name {', '.join(contestant.tries)}, "
                    f"not {name}"
                )
        self.task, self.precision = task, precision
        self.rows = {name: Row(name) for name in contestants}
        self.profiles: dict[str, list[Profile]] = {name: [] for name in contestants}
        self._contestants, self._patience, self._say = contestants, patience, say
        self._together = together
        self.interrupted = False
        self._images = task.count()
        self._floors = Floors(task, self._images, precision)

    def run(self) -> dict[str, Any]:
        """Look at everyone, one after another; the result. Ctrl-C keeps what is there by then."""
        with self._until_interrupted(), ExitStack() as stack:
            here = {
                name: replace(contestant.in_precision(self.precision), images=None)
                for name, contestant in self._contestants.items()
                if self._is_here(name, contestant)
            }
            self._measure(here)
            gate = Gate(
                stack, self.task, self._images, self.precision, self._patience, Watched,
                exact=repeated_batch.reference,
            )  # fmt: skip
            if self._together:
                self._say("building everyone")
                for name, contestant in here.items():
                    gate.begin(self.rows[name], contestant)
                for racer in list(self._admitted(gate, here)):  # all are idle, then one is timed
                    self._look(racer, gate)
            else:
                for racer in self._admitted(gate, here):
                    self._look(racer, gate)
        for name, row in self.rows.items():
            if row.status == "ok" and not self.profiles[name]:
                row.end("failed", "it was interrupted")
        return self.result()

    @contextmanager
    def _until_interrupted(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True

    def _admitted(self, gate: Gate, here: dict[str, Contestant]) -> Iterator[Racer]:
        """Those whose first steps are right."""
        for name, contestant in here.items():
            self._say(f"{name}: building, first steps")
            racer = gate.admit(self.rows[name], contestant, 10**6, TURN)
            if racer is not None:
                yield racer

    def _is_here(self, name: str, contestant: Contestant) -> bool:
        reason = contestant.missing()
        if self.precision != "float32" and not contestant.gpu:
            reason = f"it computes in float32 only, not in {self.precision}"
        if reason:
            self.rows[name].end("missing", reason)
        return not reason

    def _measure(self, here: dict[str, Contestant]) -> None:
        self._say("measuring this machine's limits")
        self._floors.measure({place_of(contestant) for contestant in here.values()})
        for name, contestant in here.items():
            self.rows[name].floor = self._floors.of(place_of(contestant))

    def _look(self, racer: Racer, gate: Gate) -> None:
        """Turns as in a race, and between them steps under the instrument."""
        name = racer.row.contestant
        if racer.turn < STEPS[0]:  # as many as under the instrument: the first step is not the rest
            racer.ready(STEPS[0], math.inf, longer=False)
        steps = min(racer.turn, STEPS[1])
        looks: list[list[Profile]] = []
        for turn in range(1, TURNS + 1):
            if racer.row.status == "ok":
                self._say(f"{name}: timing, turn {turn} of {TURNS}")
                racer.run(turn)
            if racer.row.status == "ok" and turn % 2 and len(looks) < LOOKS:
                self._say(f"{name}: {steps} steps under the instrument")
                looks.append(racer.ask("profile", steps) or [])
        if racer.row.status == "ok":
            racer.close_ledger()
        if racer.row.status == "ok":
            gate.audit(racer)
        if racer.row.status == "ok":
            self.profiles[name] = min(looks, key=lambda look: look[0].seconds)
        racer.worker.close()

    def result(self) -> dict[str, Any]:
        """Everything as JSON has it: docs/howto-kernels.md says what is what."""
        found = {
            "schema": results.SCHEMA,
            "kind": "kernels",
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine.describe(),
            "versions": {"pareo": __version__, **machine.libraries()},
            "network": self.task.network.name,
            "data": self.task.trained_on,
            "batch": self.task.batch,
            "precision": self.precision,
            "threads": self.task.threads,
            "images": self._images,
            "flops": self._floors.flops,
            **costs(self.task),
            "rows": [
                {**asdict(row), "profiles": [_kept(p) for p in self.profiles[name]]}
                for name, row in self.rows.items()
            ],
        }
        return results.checked(plain(found), "this study")


def costs(task: Task) -> dict[str, Any]:
    """What the program itself has of products and convolutions, before anything is fused.

    >>> from pareo.nn import networks
    >>> costs(Task(networks.by_name("mlp-small"), batch=1))["matrix_instructions"]
    11
    """
    found: Counter[str] = Counter()
    products = 0
    for instruction in step_program(task.network, task.batch).instructions:
        kind = kind_of_operator(instruction.name)
        found[kind] += instruction.flops
        products += kind in MATRIX
    by_kind = {kind: found[kind] for kind in KINDS if found[kind]}
    return {"flops_by_kind": by_kind, "matrix_instructions": products}


def _kept(profile: Profile) -> dict[str, Any]:
    """A profile as JSON has it: its rows in place of its events."""
    return {
        "instrument": profile.instrument,
        "mode": profile.mode,
        "note": profile.note,
        "steps": profile.steps,
        "seconds": profile.seconds,
        "rows": [asdict(row) for row in rows(profile)],
    }
