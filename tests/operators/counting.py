"""Runs an operator on `sequential` with numbers and arrays that count what is done to them.

The modules of `sequential` say `float(...)`, `divide(...)`, `exp(...)` by name. While the count
runs, those names stand for counting ones; the loops themselves are the very ones that users run.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from pareo.backends import sequential
from pareo.backends.sequential import numbers
from pareo.operators.core import Operator

MODULES = [value for value in vars(sequential).values() if isinstance(value, ModuleType)]
OPERATIONS = ("add", "sub", "mul", "truediv", "radd", "rsub", "rmul", "rtruediv")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
SIGNS = ("neg", "abs")
NOT_ARITHMETIC = ("copysign", "isinf", "isnan")


class Counted(float):
    """A number whose arithmetic and comparisons are counted."""

    flops = 0
    __hash__ = float.__hash__


def _counting(method: Callable[..., Any], gives: type, flops: int = 1) -> Callable[..., Any]:
    def counted(*values: Any) -> Any:
        Counted.flops += flops
        return gives(method(*values))

    return counted


for _name in OPERATIONS:
    setattr(Counted, f"__{_name}__", _counting(getattr(float, f"__{_name}__"), Counted))
for _name in COMPARISONS:
    setattr(Counted, f"__{_name}__", _counting(getattr(float, f"__{_name}__"), bool))
for _name in SIGNS:
    setattr(Counted, f"__{_name}__", _counting(getattr(float, f"__{_name}__"), Counted, flops=0))


class Watched:
    """An array that remembers which of its elements were read, and which were written."""

    def __init__(self, values: Any, read: Any = None, written: Any = None) -> None:
        self.values = values
        self.read = np.zeros(values.shape, bool) if read is None else read
        self.written = np.zeros(values.shape, bool) if written is None else written

    def __getitem__(self, index: tuple[int, ...]) -> Any:
        self.read[index] = True
        return self.values[index]

    def __setitem__(self, index: tuple[int, ...], value: Any) -> None:
        self.written[index] = True
        self.values[index] = value

    def item(self) -> Any:
        self.read[...] = True
        return Counted(self.values.item())

    def reshape(self, shape: Any) -> "Watched":
        return Watched(*(a.reshape(shape) for a in (self.values, self.read, self.written)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.values, name)  # shape, dtype and the like: nothing is read


class _Math:
    """The module `math`, whose functions count as one FLOP each."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(math, name)
        return (
            _counting(found, Counted) if callable(found) and name not in NOT_ARITHMETIC else found
        )


def _once(function: Callable[..., float], gives: type) -> Callable[..., Any]:
    """A function of `numbers` as one FLOP, whatever it looks at to be as IEEE has it."""
    return _counting(lambda *values: function(*map(float, values)), gives)


@contextmanager
def _standing_in() -> Iterator[None]:
    """In all modules of `sequential`, the names that compute stand for what counts."""
    functions = (
        numbers.divide, numbers.exp, numbers.log, numbers.power, numbers.sqrt, numbers.larger,
        numbers.smaller, numbers.sign,
    )  # fmt: skip
    stand_ins: dict[Any, Any] = {function: _once(function, Counted) for function in functions}
    stand_ins |= {numbers.beats: _once(numbers.beats, bool), math: _Math()}
    before = [(module, dict(vars(module))) for module in MODULES]
    try:
        for module, names in before:
            for name, value in names.items():
                if callable(value) or (value is math and module is not numbers):
                    setattr(module, name, stand_ins.get(value, value))
            vars(module)["float"] = Counted
        yield
    finally:
        for module, names in before:
            del vars(module)["float"]
            vars(module).update(names)


def counted(
    operator: Operator, operands: list[Any], attributes: dict[str, Any], result: Any
) -> tuple[int, int]:
    """FLOPs and bytes of one call on `sequential`, each element once however often it is used."""
    results = result if isinstance(result, tuple) else (result,)
    arrays = [Watched(np.asarray(operand)) for operand in operands]
    out = [Watched(np.empty(spec.shape, spec.dtype)) for spec in results]
    Counted.flops = 0
    kernel = sequential.backend.find(operator.name).function
    with _standing_in(), np.errstate(all="ignore"):
        kernel(tuple(out) if isinstance(result, tuple) else out[0], *arrays, **attributes)
    assert all(array.written.all() for array in out), "a result was not written"
    read = sum(int(array.read.sum()) * array.itemsize for array in arrays)
    return Counted.flops, read + sum(array.nbytes for array in out)
