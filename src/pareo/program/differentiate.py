"""Reverse-mode differentiation: gradients as programs of the same operators."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.device import current
from pareo.errors import GradientError
from pareo.operators.core import Operator, Symbol, is_array
from pareo.program import tree
from pareo.program.ir import Program
from pareo.program.passes import rewrite
from pareo.program.trace import Builder, replay, trace
from pareo.spec import FLOATS


def backward(builder: Builder, loss: Symbol, wrt: Sequence[Symbol], start: int = 0) -> list[Symbol]:
    """Record the gradients of `loss`, which the instructions from `start` on compute."""
    if loss.shape != () or loss.dtype not in FLOATS:
        raise GradientError(
            f"grad expects a function that returns one number; got {loss.dtype}{list(loss.shape)}"
        )
    return pull_back(builder, {loss: builder.constant(np.ones((), loss.dtype))}, wrt, start)


def pull_back(
    builder: Builder, arriving: Mapping[Symbol, Symbol], wrt: Sequence[Symbol], start: int = 0
) -> list[Symbol]:
    """Record the gradients with respect to `wrt`, given those with respect to some results.

    `start` is the position of the first instruction that may contribute.
    """
    instructions = builder.instructions[start:]
    moved = {symbol.number for symbol in wrt}
    for instruction in instructions:
        if not moved.isdisjoint(instruction.inputs):
            moved.update(instruction.outputs)
    gradients = {symbol.number: gradient for symbol, gradient in arriving.items()}
    for instruction in reversed(instructions):
        arrived = [gradients.get(number) for number in instruction.outputs]
        if moved.isdisjoint(instruction.outputs) or all(g is None for g in arrived):
            continue
        assert isinstance(instruction.operator, Operator), "differentiate before fusing"
        outputs = [builder.at(number) for number in instruction.outputs]
        several = len(outputs) > 1
        parts = instruction.operator.differentiate(
            arrived if several else arrived[0],
            outputs if several else outputs[0],
            [builder.at(number) for number in instruction.inputs],
            dict(instruction.attributes),
        )
        for number, part in zip(instruction.inputs, parts, strict=True):
            if part is not None and number in moved:
                known = gradients.get(number)
                gradients[number] = part if known is None else op.add(known, part)
    zeros = {
        symbol: builder.constant(np.zeros(symbol.shape, symbol.dtype))
        for symbol in wrt
        if symbol.number not in gradients
    }
    return [zeros[symbol] if symbol in zeros else gradients[symbol.number] for symbol in wrt]


@rewrite
def differentiate(program: Program, wrt: Sequence[int] = (0,)) -> Program:
    """The program that returns a program's one number, and the gradients for the inputs at `wrt`.

    >>> from pareo import Spec, op, trace
    >>> program = differentiate(trace(lambda x: op.sum(op.exp(x)), Spec((4,))))
    >>> [instruction.name for instruction in program.instructions]
    ['exp', 'sum', 'reshape', 'broadcast', 'hadamard']
    """
    builder, symbols = replay(program)
    if len(program.outputs) != 1:
        raise GradientError(f"grad expects one result to differentiate; got {len(program.outputs)}")
    loss = symbols[program.outputs[0]]
    chosen = [symbols[program.inputs[position]] for position in wrt]
    found = builder.program((loss, *backward(builder, loss, chosen)))
    return found.changed(arguments=program.arguments)


def value_and_grad(
    function: Callable[..., Any], wrt: int | tuple[int, ...] = 0, aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the result of `function` and its gradient for the arguments at `wrt`.

    With `aux`, `function` returns a pair: the number to differentiate, and anything else, which is
    returned after the gradient. The gradient has the nesting of the argument. Each call traces
    `function` again, so that it sees the present values of what the function closes over; to trace
    only once, see `Program.compile`.

    >>> import numpy as np
    >>> from pareo import op
    >>> value_and_grad(lambda x: op.sum(op.hadamard(x, x)))(np.array([1.0, 2.0]))
    (array(5.), array([2., 4.]))
    """
    positions = (wrt,) if isinstance(wrt, int) else tuple(wrt)

    def both(*arguments: Any) -> Any:
        found = [leaf for leaf in tree.leaves(arguments) if isinstance(leaf, Symbol)]
        if not found:
            _check_any(arguments)
            return _run(both, arguments)
        builder = found[0].recorder
        assert isinstance(builder, Builder)
        start = len(builder.instructions)
        fresh = list(arguments)
        for position in positions:
            fresh[position] = tree.transform(_renamed, _at(arguments, position))
        result, *rest = function(*fresh) if aux else (function(*fresh),)
        loss = _number(builder, result)
        chosen = [leaf for position in positions for leaf in tree.leaves(fresh[position])]
        gradients = backward(builder, loss, chosen, start)
        shaped = tree.unflatten(tuple(fresh[position] for position in positions), gradients)
        return loss, shaped[0] if isinstance(wrt, int) else shaped, *rest

    return both


def grad(function: Callable[..., Any], wrt: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """The gradient of a function that returns one number, for the arguments at `wrt`.

    >>> import numpy as np
    >>> from pareo import op
    >>> grad(lambda x: op.sum(op.hadamard(x, x)))(np.array([1.0, 2.0]))
    array([2., 4.])
    >>> grad(grad(lambda x: op.hadamard(x, op.hadamard(x, x))))(np.array(2.0))
    array(12.)
    """
    both = value_and_grad(function, wrt)

    def gradient(*arguments: Any) -> Any:
        if any(isinstance(leaf, Symbol) for leaf in tree.leaves(arguments)):
            return both(*arguments)[1]
        _check_any(arguments)
        return _run(gradient, arguments)

    return gradient


def _check_any(arguments: tuple[Any, ...]) -> None:
    if not any(True for _ in tree.leaves(arguments)):
        raise GradientError("grad expects a function of at least one array; got none")


def _run(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Trace a function, run it, and return copies of the results."""
    program = trace(function, *arguments)
    result = program.compile(current())(*arguments)
    return tree.transform(lambda array: array.copy(), result)


def _at(arguments: tuple[Any, ...], position: int) -> Any:
    if not -len(arguments) <= position < len(arguments):
        raise GradientError(f"grad expects an argument at {position}; got {len(arguments)} of them")
    return arguments[position]


def _number(builder: Builder, loss: Any) -> Symbol:
    """The result of a function as a symbol, even if it does not depend on the arguments."""
    if isinstance(loss, np.generic | float) and not isinstance(loss, bool):
        loss = np.asarray(loss)
    if not isinstance(loss, Symbol) and not is_array(loss):
        raise GradientError(f"grad expects a function that returns one number; got {loss!r}")
    return builder.own(loss)


def _renamed(symbol: Any) -> Any:
    """The same array as a new value, so that only what this function does to it counts."""
    if not isinstance(symbol, Symbol):
        raise GradientError("grad inside a traced function expects traced arrays")
    if symbol.dtype not in FLOATS:
        raise GradientError(f"grad expects float32 or float64 arguments; got {symbol.dtype}")
    return op.reshape(symbol, symbol.shape)
