"""A cell at work in a process of its own: it tells its memory, passes the gate, then is timed.

What is told of memory, in bytes:

- `used`: the most that was resident while it trained, or on a GPU in use by arrays (after the
  first step, which may search for algorithms; of JAX what XLA says that a step needs);
- `reserved`: what it had asked the system for, or on a GPU what its allocator held;
- `before`: what the process had before the task came (interpreter, libraries, machine code), for
  those whose memory is predicted; on a GPU, where arrays are counted alone, what the device keeps
  for all programs (cuBLAS's workspace);
- `data`: images and labels, which all contestants keep;
- `program`: what `program.memory` predicts, for pareo's devices.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pareo.device import Device
from pareo.lab.contestants import Contestant, Task, Trainer
from pareo.lab.experiment.gate import exact_files
from pareo.lab.experiment.runner import Runner
from pareo.lab.machine import memory
from pareo.training.step import Step

STEPS = 2  # after the first: an allocator may ask for more in the second
PROBED = 1 + STEPS  # of a probe


class CellRunner(Runner):
    """`Entrant(CellRunner, contestant, task)`: ask for `footprint`, the gate, then turns.

    The gate are `gate_steps`, and their `gate_judgement`, for which no card is needed.

    Who has others beside it may ask it to `load` first, which computes nothing.
    """

    def __init__(self, contestant: Contestant, task: Task) -> None:
        self._contestant, self._task = contestant, task
        self._first: dict[str, Any] = {}
        self._foretold: int | None = None
        self._loading = 0.0
        self._taken: exact_files.Taken | None = None

    def load(self) -> None:
        """Import the libraries, where the adapter can, and make the images and first weights."""
        start = self.clock()
        self._contestant.load()
        self._loading = self.clock() - start
        if self._contestant.gpu:  # on a CPU its memory would be taken for the contestant's
            self._task = replace(self._task, made=self._task.data())
            self._start_from()

    def footprint(self) -> dict[str, int | None]:
        """Train the first steps, and tell the memory that they took."""
        self._before = before(self._contestant, self._task)
        super().__init__(self._contestant, self._task)
        self._task = replace(self._task, made=None)  # the trainer has what it wants of them
        if self._contestant.gpu:  # which has the memory that a plan depends on, until it runs
            self._foretold = self._foretell()
        self._train(1)
        self._first_call = self.clock() - self._start + self._loading
        memory.give_back()
        memory.forget_peak()  # the copies that were made on the way here are the lab's own
        getattr(self._trainer, "forget_peak", lambda: None)()  # on a card, the search's memory
        for _ in range(STEPS):  # the last is the fastest: on a card the one before is captured
            self._step_seconds = self._train(1)[0]
        on_card = self._contestant.gpu
        return {
            "used": self.memory() if on_card else memory.peak(),
            "reserved": reserved(self._trainer) if on_card else memory.reserved(),
            "before": standing(self._trainer) if on_card else self._before,
            "data": data_bytes(self._task, self._images),
            "program": None,
        }

    def restart(self) -> None:
        """Back to the first weights and the first batch."""
        self._trainer.load(self._start_from())
        self._done = 0

    def gate_steps(self, which: int) -> None:
        """Take the gate's steps, on the first images or others."""
        start = self._start_from()
        self._taken = exact_files.steps(self._task, self._trainer, start, self._images, which)

    def gate_judgement(self, file: Path) -> tuple[str, dict[str, float]]:
        """What differs in them from the exact step in a file, and by which parts."""
        taken, self._taken = self._taken, None
        assert taken is not None
        return exact_files.judged(self._task, taken, self._start_from(), file)

    def _start_from(self) -> dict[str, Any]:
        """The first weights: kept, for AlexNet's take a second to draw."""
        if not self._first:
            self._first = self._task.parameters()
        return self._first

    def predicted(self) -> int | None:
        """The bytes of one step by `program.memory`; None for others than pareo."""
        return self._foretold if self._contestant.gpu else self._foretell()

    def _foretell(self) -> int | None:
        step: Step | None = getattr(self._trainer, "step", None)
        return step.memory() if step and is_pareo(self._contestant) else None


def warming(contestant: Contestant, task: Task) -> Callable[[], None]:
    """Builds a contestant for the sake of what its compiler keeps on disk."""

    def answer() -> None:
        contestant.build(task).run(task.order(task.count(), first=0, steps=1))

    return answer


def probing(contestant: Contestant, task: Task) -> Callable[[], dict[str, int | None]]:
    """Trains a few steps and answers with the most memory that the process has had, all told.

    On a card only what its allocator holds: the rest is seen from outside.
    """

    def answer() -> dict[str, int | None]:
        there = before(contestant, task)
        trainer = contestant.build(task)
        trainer.run(task.order(task.count(), first=0, steps=PROBED))
        if not contestant.gpu:
            return {"used": memory.peak(), "before": there}
        return {"used": reserved(trainer), "before": standing(trainer)}

    return answer


def before(contestant: Contestant, task: Task) -> int | None:
    """The process's bytes before a task comes, which counts where its memory is predicted.

    Libraries and machine code come with the same network on one image or two: a batch of one goes
    ways of its own. So does a dataset, as it was read; what of it serves as images is not counted
    here, but as data.
    """
    if contestant.gpu or not is_pareo(contestant):
        return None
    small = replace(task, batch=min(task.batch, 2))
    contestant.build(small).run(small.order(2, first=0, steps=1))
    shared = small.uncopied_bytes()
    memory.give_back()
    return memory.now() - shared


def reserved(trainer: Trainer) -> int | None:
    """What its allocator holds of a GPU's memory, where the adapter tells."""
    tell = getattr(trainer, "reserved_bytes", lambda: None)
    held: int | None = tell()
    return held


def standing(trainer: Trainer) -> int | None:
    """What a device keeps for all programs, beside the one that trains; None where it is untold."""
    tell = getattr(trainer, "standing_bytes", lambda: None)
    kept: int | None = tell()
    return kept


def data_bytes(task: Task, images: int) -> int:
    """The bytes of so many images (float32) with their labels (int64)."""
    return images * (4 * math.prod(task.network.inputs) + 8)


def is_pareo(contestant: Contestant) -> bool:
    """Whether it is one of pareo's own devices."""
    return contestant.module.endswith(".pareo_step")


def predicted(contestant: Contestant, task: Task) -> int | None:
    """The least bytes of one step by `program.memory`, without running it.

    None for others than pareo.

    >>> from pareo.lab.contestants import CONTESTANTS
    >>> from pareo.nn import networks
    >>> predicted(CONTESTANTS["pareo-compiled"], Task(networks.papers_cnn(), 128)) < 64 << 20
    True
    """
    if not is_pareo(contestant):
        return None
    told = contestant.options
    precision = str(told.get("precision", "float32"))
    place = Device(str(told["device"]), threads=task.threads, precision=precision)
    return Step(task.network, task.batch, place).memory(tight=True)
