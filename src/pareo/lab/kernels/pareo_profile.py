"""Profiles of pareo on a CPU: a clock around each instruction of the step that is raced."""

import time
from typing import Any

from pareo.lab.contestants.pareo_step import PareoTrainer
from pareo.lab.kernels.classify import kind_of_operator
from pareo.lab.kernels.events import Event, Profile
from pareo.program import Program
from pareo.program.ir import Instruction
from pareo.training.profile import Run, watched

LOOP = "(the whole step, one compiled loop)"


def profiles(trainer: PareoTrainer, order: Any) -> list[Profile]:
    """The steps as they are raced; where that is one loop, also by instruction.

    Such a loop has no boundaries between instructions, so it is one row. The same program,
    instruction by instruction, is slower and says so; it tells where the work is.
    """
    step = trainer.step
    repeated = _repeated(trainer, order)
    if repeated is not None:
        return [repeated]
    plain = _clocked(trainer, order)
    if plain.events:
        return [plain]
    start = time.perf_counter()
    trainer.run(order)
    end = time.perf_counter()
    each = (end - start) / len(order)
    loops = [
        Event(LOOP, "other", start + n * each, start + (n + 1) * each, flops=step.program.flops)
        for n in range(len(order))
    ]
    whole = Profile("a clock around the loop", len(order), each, loops)
    with step.without_loop():
        trainer.run(order[:1])  # whatever is compiled for it is so before the clock starts
        apart = _repeated(trainer, order) or _clocked(trainer, order)
    apart.mode = "by instruction, not as raced"
    return [whole, apart]


def _repeated(trainer: PareoTrainer, order: Any) -> Profile | None:
    """Steps that are repeated without Python, by a clock in machine code; None for others."""
    events: list[Event] = []
    called = trainer.step.executable.called
    shapes = [shape_of(trainer.step.executable.program, instruction) for instruction in called]

    def seen(position: int, start: float, end: float) -> None:
        instruction = called[position]
        kind, flops = kind_of_operator(instruction.name), float(instruction.flops)
        events.append(Event(instruction.name, kind, start, end, "", shapes[position], flops))

    inside = trainer.step.clocked(seen)
    if inside is None:
        return None
    trainer.run(order[[0, 0]])  # these are not repeated, but recorded
    with inside:
        start = time.perf_counter()
        trainer.run(order)
        seconds = (time.perf_counter() - start) / len(order)
    name = "a clock between the recorded instructions"
    return Profile(name, len(order), seconds, events, "(between instructions)")


def _clocked(trainer: PareoTrainer, order: Any) -> Profile:
    events: list[Event] = []
    executable = trainer.step.executable

    def clocked(instruction: Instruction, run: Run) -> Run:
        kind = kind_of_operator(instruction.name)
        shape = shape_of(executable.program, instruction)

        def timed(values: list[Any]) -> None:
            start = time.perf_counter()
            run(values)
            end = time.perf_counter()
            events.append(
                Event(instruction.name, kind, start, end, "", shape, float(instruction.flops))
            )

        return timed

    with watched(executable, clocked):
        start = time.perf_counter()
        trainer.run(order)
        seconds = (time.perf_counter() - start) / len(order)
    return Profile(
        "a clock around each instruction", len(order), seconds, events, "(between instructions)"
    )


def shape_of(program: Program, instruction: Instruction) -> str:
    """The shapes that an instruction reads, without scalars, and those that it writes.

    >>> from pareo import Spec, op, trace
    >>> program = trace(op.dot, Spec((2, 3)), Spec((3, 4)))
    >>> shape_of(program, program.instructions[0])
    '2x3, 3x4 -> 2x4'
    """

    def written(numbers: tuple[int, ...]) -> str:
        shapes = (program.specs[number].shape for number in numbers)
        return ", ".join("x".join(map(str, shape)) for shape in shapes if shape)

    return f"{written(instruction.inputs)} -> {written(instruction.outputs)}"
