"""Programs of pareo by the functions of a framework: losses, and layers of the user's own."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from pareo.lab.contestants.task import Array
from pareo.program import Program

Operators = Mapping[str, Callable[..., Any]]
# The modules of frameworks that have functions for pareo's operators.
TABLES = {
    name: f"pareo.lab.contestants.{name}_operators" for name in ("torch", "jax", "tensorflow")
}
# What is written alike in every framework.
COMMON: Operators = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "hadamard": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "scale": lambda alpha, a: alpha * a,
    "dot": lambda a, b: a @ b,
    "add_bias": lambda a, b: a + (b[:, None, None] if len(a.shape) == 4 else b),
    "part": lambda a, axis, between: a[(slice(None),) * axis + (slice(*between),)],
}


def unknown_to(framework: str, program: Program) -> list[str]:
    """The operators of a program that a framework has no function for."""
    known = import_module(TABLES[framework]).OPERATORS
    return sorted({one.name for one in program.instructions} - known.keys())


def function_in(
    program: Program, operators: Operators, constant: Callable[[Array], Any]
) -> Callable[..., Any]:
    """A program with one result as a function of a framework's arrays.

    operators: its functions, by pareo's names. constant: makes one of its arrays.
    """
    constants = {
        number: constant(array) if array.ndim else array.item()
        for number, array in program.constants.items()
    }
    # Plain tuples, which torch.compile follows.
    calls = [
        (operators[one.name], one.inputs, one.outputs, dict(one.attributes))
        for one in program.instructions
    ]
    given = program.inputs
    (last,) = program.outputs

    def function(*arrays: Any) -> Any:
        values = dict(constants)
        for number, array in zip(given, arrays, strict=True):
            values[number] = array
        for call, inputs, results, attributes in calls:
            made = call(*[values[number] for number in inputs], **attributes)
            several = made if len(results) > 1 else [made]
            for number, value in zip(results, several, strict=True):
                values[number] = value
        return values[last]

    return function


def over(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction that leaves an array without axes to reduce as it is."""
    return lambda a, axis, keepdims: reduce(a, axis, keepdims) if axis else a
