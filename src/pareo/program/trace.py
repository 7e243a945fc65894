"""Tracing: run a function on symbols, and record what it does as a program."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.errors import DtypeError, PareoError
from pareo.operators.core import Operator, Symbol, is_array
from pareo.program import tree
from pareo.program.ir import Instruction, Program
from pareo.spec import Spec


class Builder:
    """Records an instruction for each operator that is applied to its symbols."""

    def __init__(self) -> None:
        self.specs: dict[int, Spec] = {}
        self.inputs: list[int] = []
        self.constants: dict[int, Array] = {}
        self.instructions: list[Instruction] = []
        self._symbols: list[Symbol] = []
        self._known: dict[int, Symbol] = {}

    def symbol(self, spec: Spec) -> Symbol:
        """A new value."""
        number = len(self._symbols)
        self.specs[number] = spec
        self._symbols.append(Symbol(spec, number, self))
        return self._symbols[-1]

    def input(self, spec: Spec) -> Symbol:
        """A new value that the caller provides at each run."""
        symbol = self.symbol(spec)
        self.inputs.append(symbol.number)
        return symbol

    def constant(self, array: Array) -> Symbol:
        """A value that was an array when the function was traced; the array is not copied."""
        if id(array) not in self._known:
            symbol = self.symbol(Spec.of(array))
            self.constants[symbol.number] = array
            self._known[id(array)] = symbol
        return self._known[id(array)]

    def own(self, value: Any) -> Symbol:
        """The symbol for an operand: its own, or a constant."""
        if not isinstance(value, Symbol):
            return self.constant(value)
        if value.recorder is not self:
            raise PareoError("a symbol was used outside the trace that it belongs to")
        return value

    def record(
        self, operator: Operator, operands: list[Any], attributes: dict[str, Any], out: Any
    ) -> Any:
        """Record one instruction; return the symbols of its results."""
        symbols = [self.own(value) for value in operands]
        specs = [symbol.spec for symbol in symbols]
        several = isinstance(out, tuple)
        results = [self.symbol(spec) for spec in (out if several else (out,))]
        self.instructions.append(
            Instruction(
                operator,
                tuple(symbol.number for symbol in symbols),
                tuple(symbol.number for symbol in results),
                attributes,
                operator.count_flops(out, specs, attributes),
                0 if operator.view_function else operator.count_bytes(out, specs, attributes),
            )
        )
        return tuple(results) if several else results[0]

    def at(self, number: int) -> Symbol:
        """The symbol of a value."""
        return self._symbols[number]

    def program(self, result: Any) -> Program:
        """The program recorded so far, with the result `result` (symbols in any nesting)."""
        outputs = [self.own(leaf).number for leaf in tree.leaves(result)]
        return Program(
            dict(self.specs),
            tuple(self.inputs),
            dict(self.constants),
            tuple(self.instructions),
            tuple(outputs),
            tree.transform(lambda _: None, result),
        )


def replay(program: Program) -> tuple[Builder, dict[int, Symbol]]:
    """A builder with the instructions of a program, and its symbols by the old numbers."""
    builder = Builder()
    symbols = {number: builder.input(program.specs[number]) for number in program.inputs}
    symbols |= {number: builder.constant(array) for number, array in program.constants.items()}
    for instruction in program.instructions:
        assert isinstance(instruction.operator, Operator), "a fused program cannot be replayed"
        out = tuple(program.specs[number] for number in instruction.outputs)
        results = builder.record(
            instruction.operator,
            [symbols[number] for number in instruction.inputs],
            dict(instruction.attributes),
            out if len(out) > 1 else out[0],
        )
        made = results if isinstance(results, tuple) else (results,)
        symbols |= dict(zip(instruction.outputs, made, strict=True))
    return builder, symbols


def spec_of(value: Any) -> Spec:
    """The spec of an argument: the argument itself, or that of an array."""
    if isinstance(value, Spec):
        return value
    if isinstance(value, np.generic | float):
        value = np.asarray(value)
    if is_array(value):
        return Spec.of(value)
    raise DtypeError(f"trace expects arrays or specs; got {value!r}")


def trace(function: Callable[..., Any], *arguments: Any) -> Program:
    """The program of a function: what it does to arrays of these specs.

    Arguments are `Spec`s, or arrays, of which only the specs are used; tuples, lists and dicts of
    them are passed to the function with the same nesting. Arrays that the function closes over
    become constants of the program.

    >>> from pareo import Spec, op, trace
    >>> program = trace(lambda x, w: op.dot(x, w), Spec((128, 784)), Spec((784, 10)))
    >>> program.flops
    2007040
    """
    specs = [tree.transform(spec_of, argument) for argument in arguments]
    builder = Builder()
    result = function(*[tree.transform(builder.input, spec) for spec in specs])
    for leaf in tree.leaves(result):
        if not isinstance(leaf, Symbol) and not is_array(leaf):
            raise DtypeError(f"a traced function must return arrays; it returned {leaf!r}")
    form = tree.transform(lambda _: None, tuple(arguments))
    program = builder.program(result).changed(arguments=form)
    if all(spec.batch is None for spec in tree.leaves(specs)):
        return program

    def rebuild(size: int) -> Program:
        return trace(
            function, *[tree.transform(lambda spec: spec.with_batch(size), spec) for spec in specs]
        )

    return program.changed(rebuild=rebuild)
