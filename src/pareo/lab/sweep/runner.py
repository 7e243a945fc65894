"""A cell in a process of its own: it reports its memory, passes the gate, then is timed.

Memory is reported in bytes:

- `used`: the peak resident while it trained, or on a GPU the peak used by arrays (after the first
  step, which may search for algorithms; for JAX what XLA says that a step needs);
- `reserved`: what it asked the system for, or on a GPU what its allocator held;
- `before`: what the process had before the task (interpreter, libraries, machine code), for
  contestants whose memory is predicted; on a GPU, where only arrays are counted, what the device
  keeps for all programs (cuBLAS's workspace);
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
from pareo.lab.contestants.task import drawn
from pareo.lab.experiment.bounds import Natural
from pareo.lab.experiment.gate import exact_files
from pareo.lab.experiment.runner import Runner
from pareo.lab.machine import memory
from pareo.training.step import Step

STEPS = 2  # after the first: an allocator may ask for more in the second
PROBED = 1 + STEPS  # of a probe


class CellRunner(Runner):
    """A runner that reports its memory: ask for `footprint`, then the gate, then turns.

    The gate consists of `gate_steps`, and of their `gate_judgement`, which needs no GPU. `load`
    comes first; it computes nothing, so several cells may load at the same time.
    """

    def __init__(self, contestant: Contestant, task: Task) -> None:
        self._contestant, self._task = contestant, task
        self._first: dict[str, Any] = {}
        self._prediction: int | None = None
        self._loading = 0.0
        self._taken: exact_files.Taken | None = None

    def load(self) -> None:
        """Import the libraries, where the adapter can, and make the images and first weights."""
        start = self.clock()
        self._contestant.load()
        self._loading = self.clock() - start
        if self._contestant.gpu:  # on a CPU this would count as the contestant's memory
            self._task = replace(self._task, made=self._task.data())
            self._start_from()

    def footprint(self) -> dict[str, Natural | None]:
        """Train the first steps; the memory that they took."""
        self._before = before(self._contestant, self._task)
        super().__init__(self._contestant, self._task)
        self._task = replace(self._task, made=None)  # the trainer has its own copy
        if self._contestant.gpu:  # before it runs: its plan depends on the memory that is free
            self._prediction = self._predict()
        self._train(1)
        self._first_call = self.clock() - self._start + self._loading
        memory.give_back()
        memory.forget_peak()  # copies that were made until here are the lab's own
        getattr(self._trainer, "forget_peak", lambda: None)()  # of a search for algorithms
        for _ in range(STEPS):  # the last is the fastest: on a GPU the one before is captured
            self._step_seconds = self._train(1)[0]
        on_gpu = self._contestant.gpu
        return {
            "used": self.memory() if on_gpu else memory.peak(),
            "reserved": reserved(self._trainer) if on_gpu else memory.reserved(),
            "before": standing(self._trainer) if on_gpu else self._before,
            "data": data_bytes(self._task, self._images),
            "program": None,
        }

    def restart(self) -> None:
        """Back to the first weights and the first batch."""
        self._trainer.load(self._start_from())
        self._done = 0

    def gate_steps(self, which: int) -> None:
        """Take the steps of the gate, on the first images or others."""
        start = drawn(self._task.network, self._start_from(), self._task.seed)
        self._taken = exact_files.steps(self._task, self._trainer, start, self._images, which)

    def gate_judgement(self, file: Path) -> tuple[str, dict[str, float]]:
        """How they differ from the exact step in a file: a sentence, and the relative errors."""
        taken, self._taken = self._taken, None
        assert taken is not None
        start = drawn(self._task.network, self._start_from(), self._task.seed)
        return exact_files.judged(self._task, taken, start, file)

    def _start_from(self) -> dict[str, Any]:
        """The first weights; kept, because AlexNet's take a second to draw."""
        if not self._first:
            self._first = self._task.parameters()
        return self._first

    def predicted(self) -> Natural | None:
        """The bytes of one step by `program.memory`; None for others than pareo."""
        return self._prediction if self._contestant.gpu else self._predict()

    def _predict(self) -> int | None:
        step: Step | None = getattr(self._trainer, "step", None)
        return step.memory() if step and is_pareo(self._contestant) else None


def warming(contestant: Contestant, task: Task) -> Callable[[], None]:
    """Builds a contestant so that its compiler keeps its code on disk."""

    def answer() -> None:
        contestant.build(task).run(task.order(task.count(), first=0, steps=1))

    return answer


def probing(contestant: Contestant, task: Task) -> Callable[[], dict[str, int | None]]:
    """Trains a few steps and returns the peak memory of the whole process.

    On a GPU it returns only what its allocator holds: the rest is measured from outside.
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
    """The process's bytes before its task, for contestants whose memory is predicted.

    Training the same network on one or two images loads libraries and machine code (two, because
    a batch of one is computed differently), and the dataset as it was read. The part of the dataset
    that is used as images is counted as data, not here.
    """
    if contestant.gpu or not is_pareo(contestant):
        return None
    small = replace(task, batch=min(task.batch, 2))
    contestant.build(small).run(small.order(2, first=0, steps=1))
    shared = small.uncopied_bytes()
    memory.give_back()
    return memory.now() - shared


def reserved(trainer: Trainer) -> int | None:
    """GPU memory that its allocator holds, where the adapter reports it."""
    held: int | None = getattr(trainer, "reserved_bytes", lambda: None)()
    return held


def standing(trainer: Trainer) -> int | None:
    """GPU memory that a device keeps for all programs; None where it is not known."""
    kept: int | None = getattr(trainer, "standing_bytes", lambda: None)()
    return kept


def data_bytes(task: Task, images: int) -> int:
    """Bytes of this many images (float32) with their labels (int64)."""
    return images * (4 * math.prod(task.network.inputs) + 8)


def is_pareo(contestant: Contestant) -> bool:
    """Whether a contestant is one of pareo's devices."""
    return contestant.module.endswith(".pareo_step")


def predicted(contestant: Contestant, task: Task) -> int | None:
    """The least bytes of one step by `program.memory`, without running it; None for peers.

    >>> from pareo.lab.contestants import CONTESTANTS
    >>> from pareo.nn import networks
    >>> predicted(CONTESTANTS["pareo-compiled"], Task(networks.papers_cnn(), 128)) < 64 << 20
    True
    """
    if not is_pareo(contestant):
        return None
    options = contestant.options
    precision = str(options.get("precision", "float32"))
    place = Device(str(options["device"]), threads=task.threads, precision=precision)
    return Step(task.network, task.batch, place).memory(tight=True)
