"""The source text of a generated loop over groups of images: its lines, and where values lie.

The values of a group are in one array, a worker's arena. A value of the program of one image has
`lanes` floats for each of its elements there, one for each image of the group. Values that are read
in a later segment than they are written are in the store, where each group of the batch has its own
memory. Reshaped values share their memory. Memory is reused after the last instruction that reads
it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pareo.backends.compiled.loops.groups.memory import Memory
from pareo.backends.compiled.loops.groups.segments import Node, Segments
from pareo.backends.compiled.loops.source import Unsupported
from pareo.program.ir import Program


@dataclass(frozen=True)
class Weights:
    """A value that is a parameter, reshaped or transposed."""

    parameter: int
    is_transposed: bool


class GroupSource:
    """The source of the loop's body, which is the forward and backward pass of one group.

    before:    lines before the loop
    per_step:  lines at the beginning of each step, when the parameters are known
    bodies:    lines of the loop over groups, for each segment
    ends:      lines after that loop, when all workers have ended it, for each segment
    after:     lines after all segments: gradients that are equal to others
    """

    def __init__(self, program: Program, parts: Segments, lanes: int) -> None:
        self.program, self.nodes, self.lanes = program, parts.nodes, lanes
        self.averages = parts.averages
        self.before: list[str] = []
        self.per_step: list[str] = []
        self.bodies: list[list[str]] = [[] for _ in range(parts.count)]
        self.ends: list[list[str]] = [[] for _ in range(parts.count)]
        self.after: list[str] = []
        self.segment = 0  # of which lines are added
        self.arena, self.store = Memory("base"), Memory("here")
        self.moments = self.merged = 0  # numbers that workers share, and those of their own
        *self.parameters, self.image, self.label = program.inputs
        self.weights = {n: Weights(n, False) for n in self.parameters}
        self._same: dict[int, int] = {}  # values that are others, reshaped
        self._names: dict[str, str] = {}
        self._fleeting: dict[tuple[int, str], str] = {}  # by segment
        self.places: dict[int, tuple[Memory, int]] = {}
        self._sums: dict[int, int] = {}
        state = {average.parameter for average in self.averages}
        start = 0
        for parameter, output in zip(self.parameters, program.outputs[1:], strict=True):
            if parameter in state:
                continue
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
        self.kept: dict[str, str] = {}  # addresses of what is computed once for each step
        self.averaged: set[int] = set()  # state that has been computed
        self.classes = 0

    @property
    def floats(self) -> int:
        """Of the arena, and of a group in the store."""
        return self.arena.floats + self.store.floats

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

    def find_uses(self) -> None:
        """Find the last use of every value, after all views are known."""
        self._last_uses: dict[int, int] = {}
        first: dict[int, int] = {self.image: 0}
        self._crossing = set()
        for position, node in enumerate(self.nodes):
            for number in map(self.root, (*node.inputs, *node.outputs)):
                self._last_uses[number] = position
                if node.segment > first.setdefault(number, node.segment):
                    self._crossing.add(number)

    def last_use(self, number: int) -> int:
        """The position of the last node that reads a value, or a view of it."""
        return self._last_uses.get(self.root(number), -1)

    def readers(self, number: int) -> list[Node]:
        return [node for node in self.nodes if number in node.inputs]

    # Memory

    def allocate(self, number: int) -> None:
        """Find a place for a new value."""
        memory = self.store if self.root(number) in self._crossing else self.arena
        self.places[number] = memory, memory.take(self.size(number) * self.lanes)

    def release_after(self, position: int) -> None:
        """Let the memory of all values be reused that no node after this position reads."""
        for number in [n for n in self.places if self.last_use(n) <= position]:
            memory, offset = self.places.pop(number)
            memory.release(offset, self.size(number) * self.lanes)

    def is_free_after(self, number: int, position: int) -> bool:
        """Whether an operand may be overwritten by the node at this position."""
        return self.root(number) in self.places and self.last_use(number) <= position

    def can_take_over(self, number: int, other: int, position: int) -> bool:
        """Whether a result may be written over an operand that nothing reads afterwards."""
        crossing = self.root(number) in self._crossing
        return self.is_free_after(other, position) and (
            not crossing or self.places[self.root(other)][0] is self.store
        )

    def take_over(self, number: int, other: int) -> None:
        """Write a result over an operand."""
        self.places[number] = self.places.pop(self.root(other))

    # Text

    @property
    def lines(self) -> list[str]:
        return self.bodies[self.segment]

    def add(self, line: str) -> None:
        self.lines.append(line)

    def once(self, expression: str) -> str:
        """The name of an expression's value, which is computed once before the loop.

        Numba counts the references to every view, so the loop over groups creates none, except for
        those of the store, which are not counted.
        """
        if self.store.base in expression:
            key = self.segment, expression
            if key not in self._fleeting:
                self._fleeting[key] = f"own{len(self._fleeting)}"
                self.add(f"{self._fleeting[key]} = {expression}")
            return self._fleeting[key]
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

    def integers(self, *numbers: int) -> str:
        """Integers as an array; Numba would compile a function again for other literals."""
        return self.once(f"np.array({list(numbers)})")

    def at(self, number: int) -> str:
        """The address of a value."""
        memory, offset = self.places[self.root(number)]
        return memory.address(offset)

    def at_parameter(self, parameter: int) -> str:
        return self.once(f"parameters[{self.parameters.index(parameter)}]")

    def parameter(self, parameter: int) -> str:
        """A parameter as a flat array."""
        return self.array(self.at_parameter(parameter), self.size(parameter))

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
        if len(found) != 1 or self._are_read(views):
            return None
        self.collected.add(found[0])
        return self._sums[found[0]]

    def _are_read(self, views: Iterable[int]) -> bool:
        """Whether a node reads one of these views, other than to make one of the others."""
        return any(
            number in node.inputs
            for node in self.nodes
            for number in views
            if node.outputs[0] not in views
        )

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

    def check_complete(self) -> None:
        """Refuse a program that has a result for which no lines were added."""
        if set(self._sums) - self.collected:
            raise Unsupported("a gradient that depends on no image")
        if {average.parameter for average in self.averages} - self.averaged:
            raise Unsupported("state that does not follow a batch normalisation")
