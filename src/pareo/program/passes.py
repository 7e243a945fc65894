"""Passes: small pure functions from program to program."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Concatenate, ParamSpec

import numpy as np

from pareo.array import Array
from pareo.program.ir import Instruction, Program

_Rest = ParamSpec("_Rest")
Pass = Callable[Concatenate[Program, _Rest], Program]


def rewrite(change: Pass[_Rest]) -> Pass[_Rest]:
    """Make a function a pass: its result can be rebuilt for another batch size, like its source."""

    @wraps(change)
    def apply(program: Program, *args: _Rest.args, **kwargs: _Rest.kwargs) -> Program:
        source = program.rebuild
        changed = change(program, *args, **kwargs)
        if source is None:
            return changed
        return changed.changed(rebuild=lambda size: apply(source(size), *args, **kwargs))

    return apply


@rewrite
def remove_dead(program: Program) -> Program:
    """Drop instructions and constants whose results are never read."""
    needed = set(program.outputs)
    kept: list[Instruction] = []
    for instruction in reversed(program.instructions):
        if not needed.isdisjoint(instruction.outputs):
            needed.update(instruction.inputs)
            kept.append(instruction)
    kept.reverse()
    made = {number for instruction in kept for number in instruction.outputs}
    constants = {n: array for n, array in program.constants.items() if n in needed}
    alive = made | set(constants) | set(program.inputs)
    return program.changed(
        specs={n: spec for n, spec in program.specs.items() if n in alive},
        constants=constants,
        instructions=tuple(kept),
    )


@rewrite
def remove_common(program: Program) -> Program:
    """Merge instructions that compute the same and equal constant numbers; drop empty reshapes.

    >>> from pareo import Spec, op, trace
    >>> program = trace(lambda x: op.add(op.exp(x), op.exp(op.reshape(x, (2,)))), Spec((2,)))
    >>> [instruction.name for instruction in remove_common(program).instructions]
    ['exp', 'add']
    """
    same: dict[int, int] = {}
    seen: dict[object, tuple[int, ...]] = {}
    constants: dict[int, Array] = {}
    for number, array in program.constants.items():
        key: object = (str(array.dtype), array.tobytes()) if _is_number(array) else id(array)
        first = seen.setdefault(key, (number,))
        same[number] = first[0]
        if first == (number,):
            constants[number] = array
    kept: list[Instruction] = []
    for instruction in program.instructions:
        inputs = tuple(same.get(number, number) for number in instruction.inputs)
        renamed = replace(instruction, inputs=inputs)
        if (
            instruction.name == "reshape"
            and program.specs[inputs[0]] == program.specs[instruction.outputs[0]]
        ):
            same[instruction.outputs[0]] = inputs[0]
            continue
        first = seen.setdefault(renamed.key, instruction.outputs)
        if first == instruction.outputs:
            kept.append(renamed)
        else:
            same |= dict(zip(instruction.outputs, first, strict=True))
    alive = {n for instruction in kept for n in instruction.outputs}
    alive |= set(constants) | set(program.inputs)
    return program.changed(
        specs={n: spec for n, spec in program.specs.items() if n in alive},
        constants=constants,
        instructions=tuple(kept),
        outputs=tuple(same.get(number, number) for number in program.outputs),
    )


def _is_number(array: Array) -> bool:
    return isinstance(array, np.ndarray) and array.ndim == 0
