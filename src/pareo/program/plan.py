"""Memory planning: every value of a program gets an offset in one arena before anything runs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from pareo.program.ir import Instruction, Program, readers
from pareo.program.kernel import ALIGNMENT, Fusion, Kernel
from pareo.program.target import Target
from pareo.spec import Spec


@dataclass(frozen=True)
class Plan:
    """Where a program's values lie.

    offsets: for each value that owns memory, where it starts.
    views:   for each value that is a view of an earlier one, that value.
    scratch: for each instruction, by its position, the specs and offsets of its work arrays.
    """

    bytes: int
    offsets: Mapping[int, int]
    views: Mapping[int, int]
    scratch: Mapping[int, tuple[tuple[Spec, int], ...]]


@dataclass
class _Buffer:
    """A piece of memory with the first and last instruction that needs it."""

    nbytes: int
    first: int
    last: int
    offset: int = 0


def kernel_of(instruction: Instruction, target: Target) -> Kernel:
    """The kernel that runs an instruction."""
    if isinstance(instruction.operator, Fusion):
        return instruction.operator.kernel
    return target.find(instruction.name)


def plan(
    program: Program, target: Target, elsewhere: Collection[int] = (), tight: bool = False
) -> Plan:
    """Place a program's values: views share memory, as do values that are not alive together.

    Values in `elsewhere` get no memory. A `tight` plan reuses memory as soon as it is free, even
    where the target prefers to wait.

    >>> from pareo import Device, Spec, op, trace
    >>> chain = trace(lambda x: op.exp(op.exp(op.exp(x))), Spec((1024,)))
    >>> plan(chain, Device("vectorized").backend).bytes
    4096
    """
    views = _views(program, target)
    last = _last_reads(program, views)
    buffers: dict[int, _Buffer] = {}
    work: dict[int, list[tuple[Spec, _Buffer]]] = {}
    for position, instruction in enumerate(program.instructions):
        if instruction.outputs[0] in views:
            continue
        kernel = kernel_of(instruction, target)
        results = [program.specs[number] for number in instruction.outputs]
        operands = [program.specs[number] for number in instruction.inputs]
        wanted = kernel.workspace(
            tuple(results) if len(results) > 1 else results[0],
            operands,
            dict(instruction.attributes),
        )
        work[position] = [(spec, _Buffer(spec.nbytes, position, position)) for spec in wanted]
        for place, number in enumerate(instruction.outputs):
            if number in elsewhere:
                continue
            free = {
                n: buffers[n]
                for n in instruction.inputs
                if n in buffers and last[n] == buffers[n].last == position
            }
            taken = _taken_over(program, instruction, kernel, place, free, views)
            if taken is None:
                buffers[number] = _Buffer(program.specs[number].nbytes, position, last[number])
            else:
                buffers[number] = buffers[taken]
                # Beyond this instruction at least, so that no other result takes it too.
                buffers[number].last = max(last[number], position + 1)
    every = {id(buffer): buffer for buffer in buffers.values()}
    every |= {id(buffer): buffer for pieces in work.values() for _, buffer in pieces}
    distances = {key: 0 if tight else target.reuse_distance(b.nbytes) for key, b in every.items()}
    total = _place(list(every.values()), distances)
    return Plan(
        total,
        {number: buffer.offset for number, buffer in buffers.items()},
        views,
        {
            position: tuple((spec, buffer.offset) for spec, buffer in pieces)
            for position, pieces in work.items()
        },
    )


def fitting_plan(program: Program, target: Target, elsewhere: Collection[int] = ()) -> Plan:
    """The plan that a run would use now: a tight one where the target has no memory to spare."""
    found = plan(program, target, elsewhere)
    if target.has_spare_memory(found.bytes):
        return found
    return plan(program, target, elsewhere, tight=True)


def _views(program: Program, target: Target) -> dict[int, int]:
    """The values that need no memory of their own, each with the value it is a view of."""
    reading = readers(program)
    views: dict[int, int] = {}
    scattered: set[int] = set()
    for instruction in program.instructions:
        if not instruction.is_view:
            continue
        source, result = instruction.inputs[0], instruction.outputs[0]
        scatters = source in scattered or not _is_contiguous(program, instruction)
        if source in scattered and instruction.name == "reshape":
            continue  # its elements are not contiguous: they must be gathered first
        if scatters and not _may_be_strided(program, target, reading, result):
            continue
        views[result] = source
        if scatters:
            scattered.add(result)
    return views


def _is_contiguous(program: Program, instruction: Instruction) -> bool:
    """Whether a view of a C-contiguous array is C-contiguous."""
    if instruction.name == "transpose":
        axes = instruction.attributes["axes"]
        shape = program.specs[instruction.inputs[0]].shape
        wide = [axis for axis in axes if shape[axis] != 1]
        return wide == sorted(wide)
    if instruction.name == "part":
        shape = program.specs[instruction.inputs[0]].shape
        return all(size == 1 for size in shape[: instruction.attributes["axis"]])
    return True


def _may_be_strided(
    program: Program, target: Target, reading: dict[int, list[int]], number: int
) -> bool:
    """Whether every instruction that reads a value takes it in any layout."""
    if number in program.outputs:
        return False
    for position in reading[number]:
        reader = program.instructions[position]
        if not kernel_of(reader, target).strided:
            return False
        if reader.is_view and not _may_be_strided(program, target, reading, reader.outputs[0]):
            return False
    return True


def _last_reads(program: Program, views: Mapping[int, int]) -> dict[int, int]:
    """For each value, the last instruction that needs its memory; results are needed to the end."""
    end = len(program.instructions)
    last = dict.fromkeys(program.specs, -1)
    for position, instruction in enumerate(program.instructions):
        for number in (*instruction.inputs, *instruction.outputs):
            last[number] = max(last[number], position)
    for number in program.outputs:
        last[number] = end
    for result, source in reversed(list(views.items())):
        last[source] = max(last[source], last[result])
    return last


def _taken_over(
    program: Program,
    instruction: Instruction,
    kernel: Kernel,
    place: int,
    free: Mapping[int, _Buffer],
    views: Mapping[int, int],
) -> int | None:
    """An operand that is not needed afterwards and whose memory the result may use.

    All that the instruction reads of that memory must be this very operand, at positions that the
    kernel may overwrite: a view of it, such as a transpose, would see its elements change.
    """
    spec = program.specs[instruction.outputs[place]]
    roots = [_root(number, views) for number in instruction.inputs]
    for number in free:
        sharing = [which for which, root in enumerate(roots) if root == number]
        if program.specs[number] == spec and all(
            instruction.inputs[which] == number and kernel.may_overwrite(place, which)
            for which in sharing
        ):
            return number
    return None


def _root(number: int, views: Mapping[int, int]) -> int:
    """The value whose memory a value is a view of; the value itself where it is no view."""
    while number in views:
        number = views[number]
    return number


def _place(buffers: list[_Buffer], distances: Mapping[int, int]) -> int:
    """Give every buffer an offset, large ones first, each in the lowest gap; return the total size.

    `distances` are the reuse distances: between the uses of two buffers in the same place there are
    at least as many instructions as either of the two asks for.
    """
    total = 0
    # Of the buffers with a place, by offset: their first and last use, distance, offset and end.
    placed = np.empty((5, len(buffers)), np.int64)
    for count, buffer in enumerate(sorted(buffers, key=lambda b: (-b.nbytes, b.first))):
        size = -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
        first, last, distance, begin, end = placed[:, :count]
        between = np.maximum(distance, distances[id(buffer)])
        beside = (first <= buffer.last + between) & (last + between >= buffer.first)
        # The lowest offset after each of those that are alive at the same time, and before all.
        after = np.concatenate([[0], np.maximum.accumulate(end[beside])])
        gaps = np.flatnonzero(begin[beside] - after[:-1] >= size)
        buffer.offset = int(after[gaps[0] if len(gaps) else -1])
        at = int(np.searchsorted(begin, buffer.offset, side="right"))
        placed[:, at + 1 : count + 1] = placed[:, at:count].copy()
        placed[:, at] = (
            buffer.first, buffer.last, distances[id(buffer)], buffer.offset, buffer.offset + size,
        )  # fmt: skip
        total = max(total, buffer.offset + size)
    return total
