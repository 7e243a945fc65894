"""Calls of compiled functions with arguments from memory, for `replay`.

Numba passes an array to a function as separate numbers: its address, its sizes and its strides. So
the arguments of a call are words of 64 bits, and for each list of their types there is a function,
a thunk, that reads them and makes the call.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.registry import cpu_target

from pareo.backends.compiled.runtime import native

WORD = ir.IntType(64)
FAILED = -1  # what a thunk returns if the function raised an exception
_SUCCESS = 0, -2  # what a function returns of itself: a result, or None
_thunks: dict[str, int] = {}


class Unsupported(Exception):
    """An argument or a result that no word stands for."""


def words_of(kinds: Sequence[types.Type], arguments: Sequence[Any]) -> tuple[int, ...]:
    """The words of some arguments, in the order in which Numba passes them.

    >>> words_of([types.int64, types.boolean], [-3, True])
    (-3, 1)
    """
    words: list[int] = []
    for kind, argument in zip(kinds, arguments, strict=True):
        _add(words, kind, argument)
    return tuple(words)


def _add(words: list[int], kind: types.Type, argument: Any) -> None:
    if isinstance(kind, types.Array):
        nobody = 0, 0  # counts references, which the recording keeps
        words += *nobody, argument.size, argument.itemsize, argument.ctypes.data
        words += *argument.shape, *argument.strides
    elif isinstance(kind, types.Boolean):
        words.append(int(argument))
    elif isinstance(kind, types.Integer):
        words.append(int(np.array(int(argument) % (1 << 64), np.uint64).view(np.int64)))
    elif kind == types.float32:
        words.append(int(np.float32(argument).view(np.int32)))
    elif kind == types.float64:
        words.append(int(np.float64(argument).view(np.int64)))
    elif isinstance(kind, types.BaseTuple):
        inner: Any = kind
        for number, one in enumerate(argument):
            _add(words, inner[number], one)
    else:
        raise Unsupported(f"an argument of type {kind}")


def function_thunk(kinds: Sequence[types.Type], result: types.Type) -> int:
    """The address of the thunk for functions of these types, which return None or a truth.

    A thunk takes the address of a function and that of the words, and returns FAILED, or the truth,
    or 0.
    """
    if result not in (types.none, types.boolean):
        raise Unsupported(f"a result of type {result}")
    target = cpu_target.target_context
    target.refresh()
    convention = target.call_conv
    kind = convention.get_function_type(result, tuple(kinds))

    def write(builder: ir.IRBuilder, given: Sequence[ir.Value]) -> ir.Value:
        made, error, *wanted = kind.args
        place, raised = builder.alloca(made.pointee), builder.alloca(error.pointee)
        function = builder.inttoptr(given[0], kind.as_pointer())
        arguments = _loaded(builder, given[1], wanted)
        status = builder.call(function, [place, raised, *arguments])
        is_good = builder.or_(
            *(builder.icmp_signed("==", status, status.type(one)) for one in _SUCCESS)
        )
        value = builder.zext(builder.load(place), WORD) if result == types.boolean else WORD(0)
        return builder.select(is_good, value, WORD(FAILED))

    return _thunk(f"{result} of {tuple(kinds)}", write)


def range_thunk() -> int:
    """The same for C functions that take an address and a range of elements (see `jit`)."""
    kind = ir.FunctionType(ir.VoidType(), [WORD, WORD, WORD])

    def write(builder: ir.IRBuilder, given: Sequence[ir.Value]) -> ir.Value:
        function = builder.inttoptr(given[0], kind.as_pointer())
        builder.call(function, _loaded(builder, given[1], kind.args))
        return WORD(0)

    return _thunk("range", write)


def _loaded(builder: ir.IRBuilder, words: ir.Value, wanted: Sequence[ir.Type]) -> list[ir.Value]:
    """The arguments of these types, from the words at an address."""
    loaded = []
    place = builder.inttoptr(words, WORD.as_pointer())
    for number, kind in enumerate(wanted):
        word = builder.load(builder.gep(place, [WORD(number)]))
        if isinstance(kind, ir.PointerType):
            loaded.append(builder.inttoptr(word, kind))
        elif isinstance(kind, ir.DoubleType):
            loaded.append(builder.bitcast(word, kind))
        elif isinstance(kind, ir.FloatType):
            loaded.append(builder.bitcast(builder.trunc(word, ir.IntType(32)), kind))
        else:
            loaded.append(word if kind == WORD else builder.trunc(word, kind))
    return loaded


def _thunk(name: str, write: Callable[[ir.IRBuilder, Sequence[ir.Value]], ir.Value]) -> int:
    if name not in _thunks:
        kind = ir.FunctionType(WORD, [WORD, WORD])
        _thunks[name] = native.address(f"thunk: {name}", kind, write)
    return _thunks[name]
