"""Memory planning: every value of a program gets its place in one arena, before anything runs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pareo.backends.base import ALIGNMENT, Backend, Fusion, Kernel
from pareo.program.ir import Instruction, Program, readers
from pareo.spec import Spec


@dataclass(frozen=True)
class Plan:
    """Where a program's values lie.

    `offsets` places the values that own memory; `views` maps a value that is only another look at
    the memory of an earlier one to that one; `scratch` places the work arrays of each instruction.
    """

    bytes: int
    offsets: Mapping[int, int]
    views: Mapping[int, int]
    scratch: Mapping[int, tuple[tuple[Spec, int], ...]]


@dataclass
class _Buffer:
    """A stretch of memory with the first and last instruction that needs it."""

    nbytes: int
    first: int
    last: int
    offset: int = 0


def kernel_of(instruction: Instruction, backend: Backend) -> Kernel:
    """The kernel that runs an instruction."""
    if isinstance(instruction.operator, Fusion):
        return instruction.operator.kernel
    return backend.find(instruction.name)


def plan(
    program: Program, backend: Backend, elsewhere: Collection[int] = (), tight: bool = False
) -> Plan:
    """Lay a program's values out: views share, dead values make room, in place where safe.

    Values that lie `elsewhere` get no room. A `tight` plan uses memory again as soon as it can be,
    whatever the backend would rather have.

    >>> from pareo import Device, Spec, op, trace
    >>> chain = trace(lambda x: op.exp(op.exp(op.exp(x))), Spec((1024,)))
    >>> plan(chain, Device("vectorized").backend).bytes
    4096
    """
    views = _views(program, backend)
    last = _last_reads(program, views)
    buffers: dict[int, _Buffer] = {}
    work: dict[int, list[tuple[Spec, _Buffer]]] = {}
    for position, instruction in enumerate(program.instructions):
        if instruction.outputs[0] in views:
            continue
        kernel = kernel_of(instruction, backend)
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
                # Past this instruction at least, so that no other result takes it too.
                buffers[number].last = max(last[number], position + 1)
    every = {id(buffer): buffer for buffer in buffers.values()}
    every |= {id(buffer): buffer for pieces in work.values() for _, buffer in pieces}
    apart = {key: 0 if tight else backend.apart(b.nbytes) for key, b in every.items()}
    total = _place(list(every.values()), apart)
    return Plan(
        total,
        {number: buffer.offset for number, buffer in buffers.items()},
        views,
        {
            position: tuple((spec, buffer.offset) for spec, buffer in pieces)
            for position, pieces in work.items()
        },
    )


def fitting(program: Program, backend: Backend, elsewhere: Collection[int] = ()) -> Plan:
    """The plan that a run would have now: a tight one where the backend has no memory to spare."""
    found = plan(program, backend, elsewhere)
    return found if backend.spares(found.bytes) else plan(program, backend, elsewhere, tight=True)


def _views(program: Program, backend: Backend) -> dict[int, int]:
    """The values that need no memory of their own, each with the value it looks at."""
    reading = readers(program)
    views: dict[int, int] = {}
    scattered: set[int] = set()
    for instruction in program.instructions:
        operator = instruction.operator
        if isinstance(operator, Fusion) or operator.look is None:
            continue
        source, result = instruction.inputs[0], instruction.outputs[0]
        whole = _keeps_order(program, instruction)
        if source in scattered and operator.name == "reshape":
            continue  # its elements lie apart: they must be gathered first
        if (source in scattered or not whole) and not _strides_welcome(
            program, backend, reading, result
        ):
            continue
        views[result] = source
        if source in scattered or not whole:
            scattered.add(result)
    return views


def _keeps_order(program: Program, instruction: Instruction) -> bool:
    """Whether a view's elements lie one after the other, as in the array that it looks at."""
    if instruction.name == "transpose":
        axes = instruction.attributes["axes"]
        shape = program.specs[instruction.inputs[0]].shape
        wide = [axis for axis in axes if shape[axis] != 1]
        return wide == sorted(wide)
    if instruction.name == "part":
        shape = program.specs[instruction.inputs[0]].shape
        return all(size == 1 for size in shape[: instruction.attributes["axis"]])
    return True


def _strides_welcome(
    program: Program, backend: Backend, reading: dict[int, list[int]], number: int
) -> bool:
    """Whether everyone who reads a value takes it in any layout."""
    if number in program.outputs:
        return False
    for position in reading[number]:
        reader = program.instructions[position]
        if not kernel_of(reader, backend).strided:
            return False
        looks = not isinstance(reader.operator, Fusion) and reader.operator.look is not None
        if looks and not _strides_welcome(program, backend, reading, reader.outputs[0]):
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
    """An operand that nobody needs afterwards, and whose memory the result may have.

    Whatever else the instruction reads of that memory must be that same operand, in a place where
    the kernel allows it: another look at the elements, a transpose say, would see them change.
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
    """The value whose memory a value looks at, itself where it is no view."""
    while number in views:
        number = views[number]
    return number


def _place(buffers: list[_Buffer], apart: Mapping[int, int]) -> int:
    """Give every buffer an offset, large ones first, each in the lowest gap; the arena's size.

    Those that lie in the same place are needed as many instructions `apart` as either wants.
    """
    placed: list[_Buffer] = []
    total = 0
    for buffer in sorted(buffers, key=lambda b: (-b.nbytes, b.first)):
        size = -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
        offset = 0
        for other in sorted(placed, key=lambda b: b.offset):
            between = max(apart[id(buffer)], apart[id(other)])
            if other.first > buffer.last + between or other.last + between < buffer.first:
                continue
            if other.offset - offset >= size:
                break
            end = other.offset + -(-other.nbytes // ALIGNMENT) * ALIGNMENT
            offset = max(offset, end)
        buffer.offset = offset
        placed.append(buffer)
        total = max(total, offset + size)
    return total
