"""A random program as data: it can be traced for any dtype, shrunk and printed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pareo import Spec, op, trace
from pareo.operators.core import Operator
from pareo.program import Program, differentiate, grad, tree


@dataclass(frozen=True)
class Number:
    """An operand that is a Python number, not a value of the program."""

    value: Any


@dataclass(frozen=True)
class Line:
    """One line of a recipe, which makes `results` values.

    name: an operator's; `argument` or `constant`, whose value is `array`; `gradient`, of the value
    `operands[0]` by the arguments `wrt`; or `gone`, for a line that was removed. Numbers of values
    stay as they are when a line goes.
    """

    name: str
    operands: tuple[Any, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    array: Any = None
    wrt: tuple[int, ...] = ()
    results: int = 1


@dataclass(frozen=True)
class Recipe:
    """A program: its lines, the values that it returns, and how it is called.

    updates: from the position of a result to the number of the argument that it replaces.
    nesting: a seed for how arguments and results are nested in dicts and tuples; None for flat.
    wrt: arguments by which the whole program is differentiated, where it is.
    """

    lines: tuple[Line, ...]
    outputs: tuple[int, ...]
    updates: dict[int, int] = field(default_factory=dict)
    nesting: int | None = None
    wrt: tuple[int, ...] = ()

    @property
    def numbered(self) -> list[tuple[int, Line]]:
        """Every line with the number of its first value."""
        found, number = [], 0
        for line in self.lines:
            found.append((number, line))
            number += line.results
        return found

    @property
    def arguments(self) -> dict[int, Any]:
        """The arguments by their numbers, as arrays of float64 or of integers."""
        return {n: line.array for n, line in self.numbered if line.name == "argument"}

    @property
    def flat_updates(self) -> dict[int, int]:
        """The updates as `compile` takes them."""
        places = list(self.arguments)
        return {result: places.index(number) for result, number in self.updates.items()}

    def nested_arguments(self, arrays: Sequence[Any], shuffled: bool = False) -> list[Any]:
        """Arrays as the program takes them; `shuffled` changes the order of the dicts' keys."""
        trees = nested(self.nesting, len(arrays))
        filled = tree.unflatten(trees, list(arrays))
        return [reordered(item) if shuffled else item for item in filled]

    def program(self, dtype: Any) -> Program:
        """The program, traced in a dtype."""
        constants = {
            n: cast(line.array, dtype) for n, line in self.numbered if line.name == "constant"
        }

        def function(*arguments: Any) -> Any:
            given = dict(zip(self.arguments, tree.leaves(arguments), strict=True))
            values = run(self.lines, given, constants)
            results = [values[number] for number in self.outputs]
            trees = nested(None if self.nesting is None else self.nesting + 1, len(results))
            return results[0] if self.wrt else tree.unflatten(tuple(trees), results)

        specs = [Spec.of(cast(array, dtype)) for array in self.arguments.values()]
        traced = trace(function, *self.nested_arguments(specs))
        if not self.wrt:
            return traced
        places = list(self.arguments)
        return differentiate(traced, wrt=[places.index(number) for number in self.wrt])

    def pruned(self) -> "Recipe":
        """Without the lines that no result needs."""
        needed = set(self.outputs) | set(self.updates.values()) | set(self.wrt)
        kept: list[Line] = []
        for number, line in reversed(self.numbered):
            if needed.isdisjoint(range(number, number + line.results)):
                line = Line("gone", results=line.results)
            needed.update(n for n in (*line.operands, *line.wrt) if isinstance(n, int))
            kept.append(line)
        return replace(self, lines=tuple(reversed(kept)))

    def count(self) -> int:
        """How many operators there are."""
        return sum(line.name in op.registry for line in self.lines)

    def __str__(self) -> str:
        places = ", ".join(f"v{number}" for number in self.arguments)
        rows = [f"def program({places}):"]
        for number, line in self.numbered:
            rows += [f"    {row}" for row in _rows(number, line)]
        rows.append("    return " + ", ".join(f"v{number}" for number in self.outputs))
        if self.updates:
            rows.append(f"updates={self.flat_updates}")
        if self.wrt:
            rows.append("differentiated by " + ", ".join(f"v{number}" for number in self.wrt))
        if self.nesting is not None:
            rows.append(f"arguments as {nested(self.nesting, len(self.arguments))}")
        return "\n".join(rows)


def _rows(number: int, line: Line) -> Iterator[str]:
    names = ", ".join(f"v{number + place}" for place in range(line.results))
    if line.name == "argument":
        yield f"# {names}: {Spec.of(line.array)}{_shown(line.array)}"
    elif line.name == "constant":
        yield f"{names} = constant {Spec.of(line.array)}{_shown(line.array)}"
    elif line.name == "gradient":
        by = ", ".join(f"v{n}" for n in line.wrt)
        yield f"{names} = gradient of v{line.operands[0]} by {by}"
    elif line.name != "gone":
        given = [f"v{n}" if isinstance(n, int) else repr(n.value) for n in line.operands]
        given += [f"{name}={value}" for name, value in line.attributes.items()]
        yield f"{names} = op.{line.name}({', '.join(given)})"


def _shown(array: Any) -> str:
    return f" = {array.tolist()}" if array.size <= 12 else ""


def cast(array: Any, dtype: Any) -> Any:
    """Floating-point arrays in a dtype; integers stay."""
    return array.astype(dtype) if array.dtype.kind == "f" else array


def apply(operator: Operator, operands: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Call an operator with all of its operands in order."""
    names = list(operator._operands)
    if operator._many:
        return operator(list(operands), **attributes)
    return operator(**dict(zip(names, operands, strict=True)), **attributes)


def run(lines: Sequence[Line], given: dict[int, Any], constants: dict[int, Any]) -> list[Any]:
    """The values of all lines. A gradient runs the lines before it again, as its function."""
    values: list[Any] = []
    for place, line in enumerate(lines):
        if line.name == "argument":
            values.append(given[len(values)])
        elif line.name == "constant":
            values.append(constants[len(values)])
        elif line.name == "gone":
            values.extend([None] * line.results)
        elif line.name == "gradient":
            before, wrt, (loss,) = lines[:place], line.wrt, line.operands

            def function(
                *chosen: Any, before: Any = before, wrt: Any = wrt, loss: int = loss
            ) -> Any:
                fresh = given | dict(zip(wrt, chosen, strict=True))
                return run(before, fresh, constants)[loss]

            gradient = grad(function, wrt=tuple(range(len(wrt))))
            values.extend(gradient(*[given[number] for number in wrt]))
        else:
            operands = [values[n] if isinstance(n, int) else n.value for n in line.operands]
            result = apply(op.registry[line.name], operands, line.attributes)
            values.extend(result if isinstance(result, tuple) else (result,))
    return values


def nested(seed: int | None, count: int) -> list[Any]:
    """`count` leaves, nested in dicts and tuples as the seed has it."""
    if seed is None:
        return list(range(count))
    random = np.random.default_rng(seed)
    found: list[Any] = []
    place = 0
    while place < count:
        size = int(random.integers(1, min(4, count - place) + 1))
        leaves = list(range(place, place + size))
        kind = random.choice(["plain", "tuple", "list", "dict", "deep"])
        names = [str(name) for name in random.permutation(["a", "b", "c", "d"])[:size]]
        if kind == "plain":
            found += leaves
        elif kind in ("tuple", "list"):
            found.append(tuple(leaves) if kind == "tuple" else leaves)
        elif kind == "dict":
            found.append(dict(zip(names, leaves, strict=True)))
        else:
            found.append({names[0]: (leaves[0], dict(zip(names[1:], leaves[1:], strict=True)))})
        place += size
    return found


def reordered(value: Any) -> Any:
    """The same nesting with every dict's keys the other way round."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    if isinstance(value, (tuple, list)):
        return type(value)(reordered(item) for item in value)
    return value
