"""What the lines of a generated loop over images are written with: names, addresses and sums."""

from functools import cached_property
from typing import Any

from pareo.backends.compiled.loops import templates


class Unsuited(Exception):
    """Something in a program that no generated line stands for."""


class Writer:
    """Writes the lines of one image's pass."""

    def __init__(self, program: Any, layout: Any, sums: dict[int, str]) -> None:
        self.program = program
        self.layout = layout
        self.sums = sums  # results that are added up, and the names of their sums
        self.functions: list[str] = []
        self.before: list[str] = []
        self.lines: list[str] = []
        self.written: set[int] = set()  # instructions that an earlier one wrote along
        self._kept: dict[str, str] = {}

    def spec(self, number: int) -> Any:
        return self.program.specs[number]

    def shape(self, number: int) -> tuple[int, ...]:
        return self.spec(number).shape

    def once(self, expression: str) -> str:
        """The name of what an expression gives, worked out once before the loop.

        Numba counts references to every view that is made, and a count costs as much as a short
        loop: inside the loop over images no view is made but the image and its label.
        """
        if expression not in self._kept:
            self._kept[expression] = f"kept{len(self._kept)}"
            self.before.append(f"{self._kept[expression]} = {expression}")
        return self._kept[expression]

    def flat(self, number: int) -> str:
        if number in self.of_image:
            return f"v{number}.reshape(-1)"
        return self.once(f"v{number}.reshape(-1)")

    def at(self, number: int) -> str:
        """The address of a value's memory; to be asked for before a line that uses it begins."""
        if number not in self.of_image:
            return self.at_array(f"v{number}")
        line = f"at{number} = v{number}.ctypes.data"
        if line not in self.lines:
            self.add(line)
        return f"at{number}"

    def at_array(self, name: str) -> str:
        return self.once(f"{name}.ctypes.data")

    def root(self, number: int) -> int:
        """The value whose elements this one shows, in another shape."""
        for instruction in self.program.instructions:
            if instruction.outputs[0] == number and instruction.name == "reshape":
                return self.root(instruction.inputs[0])
        return number

    def sum_of(self, number: int) -> str | None:
        """The flat sum that a value, or another shape of it, is added to, if that is all its use.

        Whoever asks adds to it; nobody else will.
        """
        shapes = [n for n in self.program.specs if self.root(n) == number]
        used = [n for i in self.program.instructions for n in i.inputs if i.name != "reshape"]
        found = [n for n in shapes if n in self.sums]
        if len(found) != 1 or any(n in used for n in shapes):
            return None
        return self.once(f"{self.sums.pop(found[0])}.reshape(-1)")

    def turned(self, number: int) -> int | None:
        """The value that this one is the transpose of."""
        for instruction in self.program.instructions:
            if instruction.outputs[0] == number and instruction.name == "transpose":
                return int(instruction.inputs[0])
        return None

    def place(self, number: int) -> int | None:
        """Where a value's memory begins; None outside the arena."""
        while number in self.layout.views:
            number = self.layout.views[number]
        return self.layout.offsets.get(number)

    def add(self, line: str) -> None:
        self.lines.append(line)

    def function(self, template: templates.Template, **sizes: int) -> str:
        """A function from a template, with its sizes written in; its name."""
        name = f"{template.__name__}_{len(self.functions)}"
        self.functions.append(template(name, **sizes))
        return name

    def collect(self, number: int) -> None:
        """A finished result joins its sum."""
        if number in self.sums:
            total = self.once(f"{self.sums[number]}.reshape(-1)")
            self.add(f"parts.add_to({total}, {self.flat(number)})")

    def partner(self, instruction: Any, name: str, shared: int) -> Any:
        """The instruction of a name, right before or after, that reads the same errors."""
        at = self.program.instructions.index(instruction)
        for other in self.program.instructions[max(0, at - 1) : at + 2]:
            if other.name == name and shared in other.inputs:
                return other
        return None

    @cached_property
    def of_image(self) -> set[int]:
        """The image, its label and other shapes of them."""
        return {n for n in self.program.specs if self.root(n) in self.program.inputs[-2:]}
