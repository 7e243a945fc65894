"""Writing a random program line by line, with every value known, so that numbers stay in range."""

from collections.abc import Callable
from typing import Any

import numpy as np
from fuzzing.recipe import Line, Number, Recipe, apply
from fuzzing.reference import interpret
from operators.cases import CASES
from operators.drawing import Draw

from pareo import Device, op
from pareo.errors import GradientError, ShapeError

LARGEST = 1000.0  # of a value's numbers
# Operators that few other numbers suit than those that their cases draw.
PARTICULAR = {
    "adam", "attention_gradient", "batch_norm_gradient", "batch_norm_inference", "div", "lion",
    "log",
}  # fmt: skip
MOST = 1 << 15  # elements of a value


class Random(Draw):
    """Draws the parts of a call from NumPy's generator, which a seed alone decides."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._layout = "C"
        self.dtype = "float64"
        self._sides = [self.whole(1, 4), self.whole(2, 3)]

    def whole(self, low: int, high: int) -> int:
        return int(self._random.integers(low, high, endpoint=True))

    def flag(self) -> bool:
        return bool(self._random.integers(2))

    def one_of(self, *choices: Any) -> Any:
        return choices[int(self._random.integers(len(choices)))]

    def often(self, share: float) -> bool:
        return bool(self._random.random() < share)

    def side(self) -> int:
        """The length of a side: a program has few different ones, so that values fit together."""
        return self.one_of(*self._sides, *self._sides, 1, self.whole(1, 4))

    def size(self, least: int = 0, most: int = 3) -> int:
        side = self.side()
        return side if max(least, 1) <= side <= most else super().size(least, most)

    def order(self, ndim: int) -> tuple[int, ...]:
        axes = [int(axis) for axis in self._random.permutation(ndim)]
        return tuple(axis - ndim if self.flag() else axis for axis in axes)


class Writer:
    """The lines so far, and what each value is in float64."""

    def __init__(self, seed: int) -> None:
        self.d = Random(np.random.default_rng(seed))
        self.lines: list[Line] = []
        self.values: list[Any] = []
        self.hidden: set[int] = set()  # values that nobody else reads, as inside a fusion

    def _add(self, line: Line, *values: Any) -> int:
        self.lines.append(line)
        self.values.extend(values)
        return len(self.values) - len(values)

    def given(self, array: Any, constant: bool = False) -> int:
        """A new argument, or a constant, that float32 holds exactly."""
        array = np.array(array, order="C")
        if array.dtype.kind == "f":
            array = array.astype(np.float32).astype(np.float64)
        return self._add(Line("constant" if constant else "argument", array=array), array)

    def fresh(self, shape: tuple[int, ...], low: float = -2, high: float = 2) -> int:
        """A new argument, seldom a constant, of uniform numbers."""
        return self.given(self.d.array(shape, low, high), constant=self.d.often(0.15))

    def call(self, name: str, *operands: Any, **attributes: Any) -> int | None:
        """The first value of an operator's call; None where it is refused or leaves the range."""
        array = [self.values[n] if isinstance(n, int) else n.value for n in operands]
        try:
            with Device("vectorized", threads=1), np.errstate(all="ignore"):
                result = apply(op.registry[name], array, attributes)
        except ShapeError:
            return None
        results = result if isinstance(result, tuple) else (result,)
        if any(r.size > MOST or not np.abs(r).max(initial=0) < LARGEST for r in results):
            return None
        return self._add(Line(name, operands, attributes, results=len(results)), *results)

    def inner(self, name: str, *operands: Any, **attributes: Any) -> int | None:
        """A call whose value the lines of its idiom read, and mostly nobody else."""
        made = self.call(name, *operands, **attributes)
        if made is not None and self.d.often(0.7):
            self.hidden.add(made)
        return made

    def gradient(self, loss: int, wrt: tuple[int, ...]) -> int | None:
        """The first gradient of a number by arguments; None where there is none."""
        line = Line("gradient", (loss,), wrt=wrt, results=len(wrt))
        first = len(self.values)
        recipe = Recipe((*self.lines, line), tuple(range(first, first + len(wrt))))
        try:
            program = recipe.program("float64")
        except GradientError:
            return None
        results = interpret(program, list(recipe.arguments.values()))
        if not all(np.abs(r).max(initial=0) < LARGEST for r in results):
            return None
        return self._add(line, *results)

    def tame(self, number: int) -> int:
        """The value, brought back towards 1 where it has grown."""
        if np.abs(self.values[number]).max(initial=0) <= 8:
            return number
        way = self.d.one_of("tanh", "sigmoid", "scale", "scale")
        made = self.call(way, *([Number(0.125)] if way == "scale" else []), number)
        assert made is not None
        return made

    def pick(self, suits: Callable[[Any], bool] = lambda array: True) -> int | None:
        """A floating-point value that suits, late ones more often."""
        found = [
            n
            for n, a in enumerate(self.values)
            if a.dtype.kind == "f" and n not in self.hidden and suits(a)
        ]
        if not found:
            return None
        if self.d.flag():
            found = found[-4:]
        return self.d.one_of(*found)

    def of_shape(self, shape: tuple[int, ...]) -> int:
        """A value of this shape: one that is there, a view of one, or a new one."""
        same = self.pick(lambda array: array.shape == shape)
        if same is not None and self.d.often(0.6):
            return same
        size = int(np.prod(shape))
        way = self.d.whole(0, 5)
        if way == 0 and len(shape) > 1:
            axes = [int(axis) for axis in self.d._random.permutation(len(shape))]
            turned = tuple(shape[axes.index(axis)] for axis in range(len(shape)))
            return self._sure("transpose", self._any_of(turned), axes=tuple(axes))
        if way == 1 and shape:
            axis = self.d.whole(0, len(shape) - 1)
            before, after = self.d.whole(0, 1), self.d.whole(0, 1)
            wider = (*shape[:axis], before + shape[axis] + after, *shape[axis + 1 :])
            between = (before, before + shape[axis])
            return self._sure("part", self._any_of(wider), axis=axis, between=between)
        wide = self.pick(lambda array: size <= array.size <= 512) if way == 2 else None
        return self.fresh(shape) if wide is None else self.cut(wide, shape)

    def _any_of(self, shape: tuple[int, ...]) -> int:
        same = self.pick(lambda array: array.shape == shape)
        return self.fresh(shape) if same is None else same

    def cut(self, number: int, shape: tuple[int, ...]) -> int:
        """As many elements of a value as this shape takes, by views alone."""
        size = int(np.prod(shape))
        array = self.values[number]
        if array.ndim > 1 and self.d.flag():
            number = self._sure("transpose", number, axes=self.d.order(array.ndim))
        if array.size != size:
            number = self._sure("reshape", number, shape=(array.size,))
            start = self.d.whole(0, array.size - size)
            number = self._sure("part", number, axis=0, between=(start, start + size))
        return self._sure("reshape", number, shape=shape)

    def _sure(self, name: str, *operands: Any, **attributes: Any) -> int:
        made = self.call(name, *operands, **attributes)
        assert made is not None, f"{name} was refused"
        return made

    def any_operator(self) -> int | None:
        """A call of any declared operator, as its case draws it, on values that fit in shape."""
        name = self.d.one_of(*op.registry)
        drawn = CASES[name].make(self.d)
        attributes = dict(drawn.attributes)
        operands = list(drawn.operands)
        for operand in op.registry[name]._operands:
            if operand in attributes:  # a seed, which its case gives by name
                operands.append(attributes.pop(operand))
        keep = 0.9 if name in PARTICULAR else 0.3  # few other numbers suit them
        chosen = [self._operand(operand, keep) for operand in operands]
        if name == "max_gradient":  # its y is the largest of its a, whatever that is
            chosen[2] = self.call("max", chosen[1], axis=attributes["axis"], keepdims=True)
        return self.call(name, *chosen, **attributes)

    def _operand(self, drawn: Any, keep: float) -> Any:
        if not isinstance(drawn, (np.ndarray, np.generic)):
            return Number(drawn if isinstance(drawn, int) else float(np.float32(drawn)))
        if drawn.dtype.kind != "f":
            return self.given(drawn, constant=self.d.often(0.2))
        if self.d.often(keep):
            return self.given(drawn, constant=self.d.often(0.2))
        return self.of_shape(drawn.shape)
