"""The study behind `pareo kernels`: turns as in a race, and profiled steps between them."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from pareo.errors import PareoError
from pareo.lab.contestants import Contestant, Task
from pareo.lab.experiment.admission import Admission
from pareo.lab.experiment.gate import repeated_batch
from pareo.lab.experiment.running import Running
from pareo.lab.experiment.worker import PATIENCE
from pareo.lab.kernels import result
from pareo.lab.kernels.classify import kind_of_operator
from pareo.lab.kernels.events import KINDS, MATRIX, Profile, rows
from pareo.lab.kernels.instruments import Watched
from pareo.lab.race.engine import OneTask
from pareo.lab.race.result import Row
from pareo.machine import gpus
from pareo.training.step import step_program

TURN = 0.4  # seconds, about
TURNS = 6
LOOKS = 3  # of the instrument, between turns: the fastest is kept, the least disturbed
STEPS = (2, 40)  # under the instrument: at least, at most

ON_CPU = ("pareo-compiled", "torch", "jax")
ON_GPU = ("pareo-cuda", "torch-cuda", "jax-cuda")


def usual() -> list[str]:
    """The contestants of a study where none are named: on a GPU where there is one."""
    return list(ON_GPU if gpus() else ON_CPU)


class Study(OneTask):
    """One network at one batch size: `run` it; `profiles` are then there for a trace.

    together: build everyone at once, for machines with many cores. turns: of each contestant.
    """

    def __init__(
        self,
        task: Task,
        contestants: dict[str, Contestant],
        precision: str = "float32",
        patience: float = PATIENCE,
        together: bool = False,
        turns: int = TURNS,
        say: Callable[[str], None] = lambda doing: None,
    ) -> None:
        for name, contestant in contestants.items():
            if contestant.tries:
                raise PareoError(
                    f"kernels are those of one setting: name {', '.join(contestant.tries)}, "
                    f"not {name}"
                )
        super().__init__(task, contestants, precision, lambda study: say(study.doing))
        self.profiles: dict[str, list[Profile]] = {name: [] for name in contestants}
        self._patience, self._together, self._turns = patience, together, turns
        self.interrupted = False

    def run(self) -> result.KernelsResult:
        """Study one contestant after another; Ctrl-C keeps what is there by then."""
        self.begin()
        with self._until_interrupted(), ExitStack() as stack:
            present = {name: replace(one, images=None) for name, one in self.present().items()}
            self.measure_floors()
            admission = Admission[Row](
                stack, self.task, self.images, self.precision, self._patience, Watched,
                exact=repeated_batch.reference,
            )  # fmt: skip
            if self._together:
                self.say("building everyone")
                for name, contestant in present.items():
                    admission.begin(self.rows[name], contestant)
            admitted = self._admitted(admission, present)
            # Where everyone is built at once, all are idle before one is timed.
            for running in list(admitted) if self._together else admitted:
                self._look(running, admission)
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

    def _admitted(
        self, admission: Admission[Row], present: dict[str, Contestant]
    ) -> Iterator[Running[Row]]:
        """Those whose first steps are right."""
        for name, contestant in present.items():
            self.say(f"{name}: building, first steps and the same in float64")
            running = admission.admit(self.rows[name], contestant, 10**6, TURN)
            if running is not None:
                yield running

    def _look(self, running: Running[Row], admission: Admission[Row]) -> None:
        """Turns as in a race, and between them steps under the instrument."""
        row = running.entry
        if row.turn.steps < STEPS[0]:  # as many as are profiled: a first step is unlike the rest
            running.prepare(STEPS[0], math.inf, longer=False)
        row.slice = row.turn.steps / math.ceil(running.scale)
        steps = min(row.turn.steps, STEPS[1])
        looks: list[list[Profile]] = []
        for turn in range(1, self._turns + 1):
            if running.ok:
                self.say(f"{row.contestant}: timing, turn {turn} of {self._turns}")
                running.run(turn)
            if running.ok and turn % 2 and len(looks) < LOOKS:
                self.say(f"{row.contestant}: {steps} steps under the instrument")
                looks.append(running.ask("profile", steps) or [])
        if running.ok:
            admission.finish(running)
        if running.ok:
            self.profiles[row.contestant] = min(looks, key=lambda look: look[0].seconds)
        running.worker.close()

    def result(self) -> result.KernelsResult:
        """Everything that is known so far: docs/howto-kernels.md describes it."""
        found = [
            result.Row(**vars(row), profiles=[_look(p) for p in self.profiles[name]])
            for name, row in self.rows.items()
        ]
        return result.KernelsResult(
            **self.header(result.KernelsResult, "kernels"), **self.settings(), **costs(self.task),
            rows=found,
        )  # fmt: skip


def costs(task: Task) -> dict[str, Any]:
    """The program's own products and convolutions, before anything is fused.

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


def _look(profile: Profile) -> result.Look:
    """A profile as it is kept: kernels in place of events."""
    kept = {name: getattr(profile, name) for name in ("instrument", "mode", "note", "steps")}
    return result.Look(**kept, seconds=profile.seconds, rows=rows(profile))
