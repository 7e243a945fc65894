"""The source text of a generated loop over groups of images: its lines, and where values lie.

All values of a group are in one array, a worker's arena. A value of the program of one image has
`lanes` floats for each of its elements there, one for each image of the group. Reshaped values
share their memory. Memory is reused after the last instruction that reads it.
"""

from dataclasses import dataclass

from pareo.backends.compiled.loops.source import Unsupported
from pareo.program.ir import Instruction, Program

ALIGN = 16  # floats


@dataclass(frozen=True)
class Weights:
    """A value that is a parameter, reshaped or transposed."""

    parameter: int
    is_transposed: bool


class GroupSource:
    """The source of the loop body, which is the forward and backward pass of one group.

    before:    lines before the loop
    per_step:  lines at the beginning of each step, when the parameters are known
    lines:     lines of the loop body
    after:     lines after the loop over groups: gradients that are equal to others
    """

    def __init__(self, program: Program, lanes: int) -> None:
        self.program, self.lanes = program, lanes
        self.before: list[str] = []
        self.per_step: list[str] = []
        self.lines: list[str] = []
        self.after: list[str] = []
        self.floats = 0  # of the arena
        *self.parameters, self.image, self.label = program.inputs
        self.weights = {n: Weights(n, False) for n in self.parameters}
        self._same: dict[int, int] = {}  # values that are others, reshaped
        self._names: dict[str, str] = {}
        self._free: list[tuple[int, int]] = []
        self.places: dict[int, int] = {}
        self._sums: dict[int, int] = {}
        start = 0
        for parameter, output in zip(self.parameters, program.outputs[1:], strict=True):
            size = program.specs[parameter].size
            if output in self._sums:  # as biases that are added to the same values
                self.after.append(
                    f"totals[{start} : {start + size}] = "
                    f"totals[{self._sums[output]} : {self._sums[output] + size}]"
                )
            else:
                self._sums[output] = start
            start += size
        self.collected: set[int] = set()
        self.biased: set[int] = set()  # results whose layer has added their bias already
        self.packed: dict[str, int] = {}  # offsets of packed weights
        self.classes = self.image_at = 0

    # Values of the program

    def shape(self, number: int) -> tuple[int, ...]:
        return self.program.specs[number].shape

    def size(self, number: int) -> int:
        return int(self.program.specs[number].size)

    def root(self, number: int) -> int:
        """The value of which this one is a reshaped view, or itself."""
        while number in self._same:
            number = self._same[number]
        return number

    def alias(self, number: int, other: int) -> None:
        """Make a value share the memory of another."""
        self._same[number] = other

    def last_use(self, number: int) -> int:
        """The position of the last instruction that reads a value, or a view of it."""
        return self._last_uses.get(self.root(number), -1)

    def find_uses(self) -> None:
        """Find the last use of every value, after all views are known."""
        self._last_uses = {}
        for position, instruction in enumerate(self.program.instructions):
            for number in (*instruction.inputs, *instruction.outputs):
                self._last_uses[self.root(number)] = position

    def readers(self, number: int) -> list[Instruction]:
        return [i for i in self.program.instructions if number in i.inputs]

    # Memory

    def allocate(self, number: int) -> None:
        """Find a place for a new value."""
        self.places[number] = self.take(self.size(number) * self.lanes)

    def take(self, floats: int) -> int:
        """The offset of that many floats, the first that are free."""
        floats = -(-max(1, floats) // ALIGN) * ALIGN
        for at, (offset, room) in enumerate(self._free):
            if room >= floats:
                self._free[at : at + 1] = [(offset + floats, room - floats)] * (room > floats)
                return offset
        offset = self.floats
        if self._free and sum(self._free[-1]) == self.floats:
            offset = self._free.pop()[0]
        self.floats = offset + floats
        return offset

    def release(self, number: int) -> None:
        """Let a value's memory be reused."""
        offset = self.places.pop(number)
        room = -(-max(1, self.size(number) * self.lanes) // ALIGN) * ALIGN
        pieces = sorted([*self._free, (offset, room)])
        self._free = [pieces[0]]
        for offset, room in pieces[1:]:
            if sum(self._free[-1]) == offset:
                self._free[-1] = (self._free[-1][0], self._free[-1][1] + room)
            else:
                self._free.append((offset, room))

    def release_after(self, position: int) -> None:
        """Release all values that no instruction after this position reads."""
        for number in [n for n in self.places if self.last_use(n) <= position]:
            self.release(number)

    def take_over(self, number: int, other: int) -> None:
        """Let a result be written over an operand that nothing reads afterwards."""
        self.places[number] = self.places.pop(self.root(other))

    def is_free_after(self, number: int, position: int) -> bool:
        """Whether an operand may be overwritten by the instruction at this position."""
        return self.root(number) in self.places and self.last_use(number) <= position

    # Text

    def add(self, line: str) -> None:
        self.lines.append(line)

    def once(self, expression: str) -> str:
        """The name of an expression's value, which is computed once before the loop.

        Numba counts the references to every view, so the loop over groups creates none.
        """
        if expression not in self._names:
            self._names[expression] = f"kept{len(self._names)}"
            self.before.append(f"{self._names[expression]} = {expression}")
        return self._names[expression]

    def view(self, number: int, *shape: int) -> str:
        """A value as a flat array, or as an array of some shape."""
        return self.array(self.at(number), *(shape or (self.size(number) * self.lanes,)))

    def array(self, address: str, *shape: int) -> str:
        """The floats at an address as an array."""
        kind = ("flat", "matrix", "block")[len(shape) - 1]
        return self.once(f"moves.{kind}({address}, {', '.join(map(str, shape))})")

    def at(self, number: int) -> str:
        """The address of a value in the arena."""
        return self.in_arena(self.places[self.root(number)])

    def in_arena(self, offset: int) -> str:
        return f"base + {4 * offset}"

    def at_parameter(self, parameter: int) -> str:
        return self.once(f"parameters[{self.parameters.index(parameter)}]")

    def parameter_of(self, number: int, what: str, is_transposed: bool = False) -> int:
        """The parameter that a value is, perhaps reshaped."""
        found = self.weights.get(number)
        if found is None or found.is_transposed != is_transposed:
            raise Unsupported(what)
        return found.parameter

    def call(self, kernel: str, addresses: list[str], *sizes: int) -> None:
        """Call a kernel with sizes as literals."""
        self.add(f"{kernel}({', '.join([*addresses, *map(str, sizes)])})")

    # Results that are summed over images

    def sum_of(self, number: int) -> int | None:
        """Where the sum of a value begins, if that is the only use of the value; or None.

        The caller must add to it: `collect` then does nothing for this value.
        """
        views = [n for n in self.program.specs if self.root(n) == self.root(number)]
        found = [n for n in views if n in self._sums]
        read = any(n in i.inputs for i in self.program.instructions for n in views if
                   i.outputs[0] not in views)  # fmt: skip
        if len(found) != 1 or read:
            return None
        self.collected.add(found[0])
        return self._sums[found[0]]

    def at_sum(self, start: int) -> str:
        return f"sum_base + {4 * start}"

    def collect(self, number: int) -> None:
        """Add a finished result to its sum, if it has one."""
        if number in self._sums and number not in self.collected:
            self.collected.add(number)
            start, size = self._sums[number], self.size(number)
            total = self.array(self.at_sum(start), size)
            rows = self.view(number, size, self.lanes)
            self.add(f"gradient_sums.add_planes({total}, {rows})")
