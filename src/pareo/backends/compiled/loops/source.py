"""The source text of a generated loop over images: its lines, names, addresses and sums."""

from functools import cached_property

from pareo.backends.compiled.loops import templates
from pareo.program.ir import Instruction, Program
from pareo.program.plan import Plan
from pareo.spec import Spec


class Unsupported(Exception):
    """A program has an instruction that generated loops do not support."""


def indented(lines: list[str], spaces: int) -> str:
    """Lines as one text, each after some spaces."""
    return "\n".join(" " * spaces + line for line in lines)


class LoopSource:
    """The source of the loop body, which is the forward and backward pass of one image.

    functions: definitions of functions that the loop calls
    before:    lines before the loop
    lines:     lines of the loop body
    sums:      results that are summed over images, and the names of their sums
    written:   results that an earlier instruction's lines compute, too
    """

    def __init__(self, program: Program, plan: Plan, sums: dict[int, str]) -> None:
        self.program = program
        self.plan = plan
        self.sums = sums
        self.functions: list[str] = []
        self.before: list[str] = []
        self.lines: list[str] = []
        self.written: set[int] = set()
        self._names: dict[str, str] = {}

    def spec(self, number: int) -> Spec:
        return self.program.specs[number]

    def shape(self, number: int) -> tuple[int, ...]:
        return self.spec(number).shape

    def once(self, expression: str) -> str:
        """The name of an expression's value, which is computed once before the loop.

        Numba counts the references to every view, and a count costs as much as a short loop. So the
        loop over images creates no views but those of the image and its label.
        """
        if expression not in self._names:
            self._names[expression] = f"kept{len(self._names)}"
            self.before.append(f"{self._names[expression]} = {expression}")
        return self._names[expression]

    def flat(self, number: int) -> str:
        """A value as a flat array."""
        if number in self.of_image:
            return f"v{number}.reshape(-1)"
        return self.once(f"v{number}.reshape(-1)")

    def at(self, number: int) -> str:
        """The address of a value's memory; call this before the line that uses it is added."""
        if number not in self.of_image:
            return self.at_array(f"v{number}")
        line = f"at{number} = v{number}.ctypes.data"
        if line not in self.lines:
            self.add(line)
        return f"at{number}"

    def at_array(self, name: str) -> str:
        """The address of the memory of an array with a name."""
        return self.once(f"{name}.ctypes.data")

    def root(self, number: int) -> int:
        """The value of which this one is a reshaped view, if it is one, or itself."""
        for instruction in self.program.instructions:
            if instruction.outputs[0] == number and instruction.name == "reshape":
                return self.root(instruction.inputs[0])
        return number

    def sum_of(self, number: int) -> str | None:
        """The flat sum to which a value is added, if the value has no other use.

        The caller must add to it: `collect` then does nothing for this value.
        """
        shapes = [n for n in self.program.specs if self.root(n) == number]
        used = [n for i in self.program.instructions for n in i.inputs if i.name != "reshape"]
        found = [n for n in shapes if n in self.sums]
        if len(found) != 1 or any(n in used for n in shapes):
            return None
        return self.once(f"{self.sums.pop(found[0])}.reshape(-1)")

    def transposed(self, number: int) -> int | None:
        """The value of which this one is the transpose, if it is one."""
        for instruction in self.program.instructions:
            if instruction.outputs[0] == number and instruction.name == "transpose":
                return int(instruction.inputs[0])
        return None

    def offset(self, number: int) -> int | None:
        """The offset of a value's memory in the arena; None outside the arena."""
        while number in self.plan.views:
            number = self.plan.views[number]
        return self.plan.offsets.get(number)

    def add(self, line: str) -> None:
        """Add a line to the loop body."""
        self.lines.append(line)

    def function(self, template: templates.Template, **sizes: int) -> str:
        """Add a function from a template, with its sizes as literals; return its name."""
        name = f"{template.__name__}_{len(self.functions)}"
        self.functions.append(template(name, **sizes))
        return name

    def collect(self, number: int) -> None:
        """Add a finished result to its sum, if it has one."""
        if number in self.sums:
            total = self.once(f"{self.sums[number]}.reshape(-1)")
            self.add(f"gradient_sums.add_to({total}, {self.flat(number)})")

    def neighbour(self, instruction: Instruction, name: str, operand: int) -> Instruction | None:
        """The instruction of a name, right before or after, that reads the same operand."""
        at = self.program.instructions.index(instruction)
        for other in self.program.instructions[max(0, at - 1) : at + 2]:
            if other.name == name and operand in other.inputs:
                return other
        return None

    @cached_property
    def of_image(self) -> set[int]:
        """The image, its label, and reshaped views of them."""
        return {n for n in self.program.specs if self.root(n) in self.program.inputs[-2:]}
