"""Fusion: several instructions become one where the target has a kernel for them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pareo.errors import PareoError
from pareo.operators.elementwise import BROADCASTING
from pareo.program.ir import Instruction, Program, readers
from pareo.program.kernel import Fusion
from pareo.program.passes import rewrite
from pareo.program.target import Target


@dataclass(frozen=True)
class PatternLine:
    """One line of a pattern: `results = operator(operands, attribute=literal)`."""

    operator: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    literals: tuple[tuple[str, Any], ...]

    @property
    def result(self) -> str:
        """The first result, which for most operators is the only one."""
        return self.results[0]


@dataclass(frozen=True)
class Match:
    """Where a pattern was found: the instructions' positions, and the value of each variable."""

    positions: tuple[int, ...]
    values: dict[str, int]


@lru_cache(maxsize=256)
def parse(pattern: str) -> tuple[PatternLine, ...]:
    """The lines of a pattern.

    >>> parse("y = sum(x, axis=(0,))")
    (PatternLine(operator='sum', operands=('x',), results=('y',), literals=(('axis', (0,)),)),)
    """
    lines = []
    for line in ast.parse(pattern.strip()).body:
        match line:
            case ast.Assign([ast.Name(result)], ast.Call(ast.Name(name)) as call):
                results: tuple[str, ...] = (result,)
            case ast.Assign([ast.Tuple(names)], ast.Call(ast.Name(name)) as call):
                results = tuple(item.id for item in names if isinstance(item, ast.Name))
            case _:
                raise ValueError(f"a pattern's line reads 'y = operator(x)'; got {pattern!r}")
        literals = [(word.arg or "", ast.literal_eval(word.value)) for word in call.keywords]
        operands = tuple(item.id for item in call.args if isinstance(item, ast.Name))
        lines.append(PatternLine(name, operands, results, tuple(literals)))
    return tuple(lines)


@rewrite
def fuse(program: Program, target: Target) -> Program:
    """Replace instructions that the target can compute at once, trying its fusions in order.

    >>> from pareo import Device, Spec, op, trace
    >>> specs = Spec((8, 4)), Spec((4, 2)), Spec((2,))
    >>> two = trace(lambda x, w, b: op.add_bias(op.dot(x, w), b), *specs)
    >>> [i.name for i in fuse(two, Device("compiled").backend).instructions]
    ['dot_bias']
    """
    index = _Index(program)
    for fusion in target.fusions:
        searching = True
        while searching:
            searching = False
            for match in matches(program, fusion, index):
                fused = _replaced(program, fusion, match, index)
                if fused is not None:
                    program, searching = fused, True
                    index = _Index(program)
                    break
    return program


class _Index:
    """Where the instructions of a program are: by name, by what they read, by what they write."""

    def __init__(self, program: Program) -> None:
        self.named: dict[str, list[int]] = {}
        self.writer: dict[int, int] = {}
        self.reading = readers(program)
        for position, instruction in enumerate(program.instructions):
            self.named.setdefault(instruction.name, []).append(position)
            self.writer |= dict.fromkeys(instruction.outputs, position)

    def candidates(self, line: PatternLine, values: dict[str, int]) -> list[int]:
        """The positions, in order, at which a line can be, if some variables have values."""
        for name in line.results:
            if name in values:
                return [self.writer[values[name]]] if values[name] in self.writer else []
        found = [self.reading[values[name]] for name in line.operands if name in values]
        if found:
            fewest: list[int] = min(found, key=len)
            return sorted(set(fewest))
        return self.named.get(line.operator, [])


def matches(program: Program, fusion: Fusion, index: _Index | None = None) -> Iterator[Match]:
    """Every way to match a pattern's lines with instructions of a program."""
    lines, index = parse(fusion.pattern), index or _Index(program)
    if all(line.operator in index.named for line in lines):
        yield from _extended(program, index, lines, Match((), {}))


def _extended(
    program: Program, index: _Index, lines: tuple[PatternLine, ...], found: Match
) -> Iterator[Match]:
    if len(found.positions) == len(lines):
        yield found
        return
    line = lines[len(found.positions)]
    for position in index.candidates(line, found.values):
        if position in found.positions:
            continue
        values = _bound(line, program.instructions[position], found.values)
        if values is not None:
            more = Match((*found.positions, position), values)
            yield from _extended(program, index, lines, more)


def _bound(
    line: PatternLine, instruction: Instruction, values: dict[str, int]
) -> dict[str, int] | None:
    """The variables after matching a line with an instruction; None if they do not match."""
    if instruction.name != line.operator or len(instruction.inputs) != len(line.operands):
        return None
    if len(instruction.outputs) != len(line.results):
        return None
    if any(instruction.attributes.get(name) != value for name, value in line.literals):
        return None
    bound = dict(values)
    names = (*line.operands, *line.results)
    pairs = zip(names, (*instruction.inputs, *instruction.outputs), strict=True)
    if all(bound.setdefault(name, number) == number for name, number in pairs):
        return bound
    return None


def _replaced(program: Program, fusion: Fusion, match: Match, index: _Index) -> Program | None:
    """The program with the match as one instruction; None where that would be incorrect."""
    members = [program.instructions[position] for position in match.positions]
    inputs = tuple(match.values[name] for name in fusion.inputs)
    outputs = tuple(match.values[name] for name in fusion.outputs)
    inside = {number for member in members for number in member.outputs}
    if not inside.isdisjoint(inputs):  # the kernel would read what it is about to write
        return None
    if not (_private(program, fusion, match, index) and _convex(program, match)):
        return None
    if not fusion.broadcasts and any(_broadcasts(program, member) for member in members):
        return None
    attributes: dict[str, Any] = {}
    for line, member in zip(parse(fusion.pattern), members, strict=True):
        literal = dict(line.literals)
        own = {k: v for k, v in member.attributes.items() if k not in literal}
        if any(attributes.get(k, v) != v for k, v in own.items()):
            return None  # the kernel takes one value for each name
        attributes |= own
    results = tuple(program.specs[number] for number in outputs)
    operands = [program.specs[number] for number in inputs]
    if fusion.when and not fusion.when(
        results if len(results) > 1 else results[0], *operands, **attributes
    ):
        return None
    moved = sum(spec.nbytes for spec in (*operands, *results))
    flops = sum(member.flops for member in members)
    fused = Instruction(fusion, inputs, outputs, attributes, flops, moved)
    last = max(match.positions)
    instructions = [
        fused if position == last else instruction
        for position, instruction in enumerate(program.instructions)
        if position == last or position not in match.positions
    ]
    inner = set(match.values.values()) - set(inputs) - set(outputs)
    return program.changed(
        instructions=in_order(program, instructions),
        specs={n: spec for n, spec in program.specs.items() if n not in inner},
    )


def _broadcasts(program: Program, instruction: Instruction) -> bool:
    """Whether an instruction repeats an operand to the shape of its result."""
    shape = program.specs[instruction.outputs[0]].shape
    return instruction.name in BROADCASTING and any(
        program.specs[number].shape != shape for number in instruction.inputs
    )


def _private(program: Program, fusion: Fusion, match: Match, index: _Index) -> bool:
    """Whether all values that the fused kernel does not write are read inside the match only."""
    reading = index.reading
    for name, number in match.values.items():
        if name in fusion.inputs or name in fusion.outputs:
            continue
        if number in program.outputs or not set(reading[number]) <= set(match.positions):
            return False
    return True


def _convex(program: Program, match: Match) -> bool:
    """Whether no value leaves the match and comes back into it."""
    members = {program.instructions[p].outputs[0] for p in match.positions}
    touched = {n for p in match.positions for n in program.instructions[p].outputs}
    outside: set[int] = set()
    for instruction in program.instructions:
        if instruction.outputs[0] in members:
            if not outside.isdisjoint(instruction.inputs):
                return False
        elif not (touched | outside).isdisjoint(instruction.inputs):
            outside.update(instruction.outputs)
    return True


def in_order(program: Program, instructions: list[Instruction]) -> tuple[Instruction, ...]:
    """The instructions in an order in which every value is written before it is read.

    Raises:
        PareoError: instructions depend on each other's results, so there is no such order.
    """
    ready = set(program.inputs) | set(program.constants)
    ordered: list[Instruction] = []
    waiting = instructions
    while waiting:
        late = []
        for instruction in waiting:
            if ready.issuperset(instruction.inputs):
                ordered.append(instruction)
                ready.update(instruction.outputs)
            else:
                late.append(instruction)
        if len(late) == len(waiting):
            names = ", ".join(instruction.name for instruction in late)
            raise PareoError(f"these instructions depend on each other's results: {names}")
        waiting = late
    return tuple(ordered)
