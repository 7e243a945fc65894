"""Where the time of pareo's step goes: a clock around each instruction, by layer."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pareo.lab.arena.layers import labels, owners
from pareo.lab.arena.result import Spent
from pareo.lab.contestants import Contestant, Task
from pareo.lab.contestants.pareo_step import PareoTrainer
from pareo.lab.experiment.results import convert, plain
from pareo.lab.experiment.worker import Worker
from pareo.lab.kernels.pareo_profile import shape_of
from pareo.program.ir import Instruction
from pareo.training.profile import Run, watched

TIMES = 5  # steps, of which the fastest run of each instruction counts
KEPT = 3  # layers
REST = "other"  # whatever no layer with parameters is near


def spent_by(contestant: Contestant, task: Task, patience: float) -> list[Spent]:
    """The layers that take longest, in a process of its own; Failed where it does not answer."""
    with Worker(timing, contestant, task, threads=task.threads) as worker:
        found = worker.ask(patience=patience)
        return [convert(one, Spent, "the clock") for one in found]


def timing(contestant: Contestant, task: Task) -> Callable[[], Any]:
    """What runs in that process: a function that returns the layers as plain data."""

    def answer() -> Any:
        trainer = contestant.build(task)
        assert isinstance(trainer, PareoTrainer)
        return plain(spent(trainer, task))

    return answer


def _as_trained(trainer: PareoTrainer) -> Mapping[int, list[float]]:
    """The seconds of each instruction, by its first result, in steps that are repeated; or none."""
    called = trainer.step.executable.called
    seconds: dict[int, list[float]] = defaultdict(list)

    def seen(position: int, start: float, end: float) -> None:
        seconds[called[position].outputs[0]].append(end - start)

    inside = trainer.step.clocked(seen)
    if inside is not None:
        order = np.tile(np.arange(trainer.step.batch), (TIMES, 1))
        trainer.run(order[:2])  # these are not repeated, but recorded
        with inside:
            trainer.run(order)
    return seconds


def _one_by_one(trainer: PareoTrainer) -> Mapping[int, list[float]]:
    """The same where an instruction follows the other, whatever the step is raced as."""
    executable = trainer.step.executable
    seconds: dict[int, list[float]] = defaultdict(list)
    wait = executable.device.backend.wait

    def clocked(instruction: Instruction, run: Run) -> Run:
        taken = seconds[instruction.outputs[0]]

        def timed(values: list[Any]) -> None:
            start = time.perf_counter()
            run(values)
            wait()
            taken.append(time.perf_counter() - start)

        return timed

    trainer.run_as_program()  # whatever is compiled for it is so before the clock starts
    with watched(executable, clocked):
        for _ in range(TIMES):
            trainer.run_as_program()
    return seconds


def spent(trainer: PareoTrainer, task: Task) -> list[Spent]:
    """The layers that take longest, of a step that runs instruction by instruction.

    A step that is raced as one loop, or as a graph, has no such parts: this is where its work is.
    """
    program = trainer.step.executable.program
    with trainer.step.without_loop():
        seconds = _as_trained(trainer) or _one_by_one(trainer)
    names = labels(task.network)
    by_layer: dict[str, list[tuple[float, Instruction]]] = defaultdict(list)
    paths = list(task.network.parameters(task.network.inputs))
    for instruction, owner in zip(program.instructions, owners(program, paths), strict=True):
        if taken := seconds.get(instruction.outputs[0]):
            by_layer[names.get(owner, REST)].append((min(taken), instruction))
    whole = sum(took for parts in by_layer.values() for took, _ in parts)
    totals = {layer: sum(took for took, _ in parts) for layer, parts in by_layer.items()}
    found = []
    for layer in sorted(totals, key=totals.__getitem__, reverse=True)[:KEPT]:
        longest = max(by_layer[layer], key=lambda part: part[0])[1]
        share = totals[layer] / whole if whole else 0.0
        found.append(
            Spent(layer=layer, share=share, operator=longest.name, shape=shape_of(program, longest))
        )
    return found
