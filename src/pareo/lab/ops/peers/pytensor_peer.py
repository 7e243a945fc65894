"""PyTensor's operators, each a compiled function; backward is that of its gradient."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from pareo.lab.ops.peers.peer import Missing
from pareo.lab.ops.work import FORWARD, Work

pytensor: Any = None  # imported when needed
pt: Any = None


class Pytensor:
    """PyTensor on the CPU, by the backend that it chooses."""

    def __init__(self) -> None:
        global pytensor, pt
        pytensor, pt = import_module("pytensor"), import_module("pytensor.tensor")
        self._compiled: dict[Work, Any] = {}

    def call(self, work: Work, arrays: list[Any]) -> Callable[[], Any]:
        """A function that does the work on these arrays."""
        if work.case.operator.name not in OPERATORS:
            raise Missing(f"PyTensor has no {work.case.operator.name} here")
        if work not in self._compiled:
            self._compiled = {work: _compiled(work, arrays)}
        function = self._compiled[work]
        given = arrays if work.direction == FORWARD else [arrays[0], *arrays[2:]]
        return lambda: function(*given)

    def wait(self) -> None:
        """Calls return when they have finished."""

    def host(self, result: Any) -> Any:
        """A result as a NumPy array."""
        return np.asarray(result)


def _compiled(work: Work, arrays: list[Any]) -> Any:
    case, function = work.case, OPERATORS[work.case.operator.name]
    given = arrays if work.direction == FORWARD else arrays[2:]
    operands = [pt.tensor(dtype=a.dtype.name, shape=a.shape) for a in given]
    out = function(*case.filled(operands), **case.attributes)
    if work.direction == FORWARD:
        return pytensor.function(operands, out)
    gradient = pt.tensor(dtype=arrays[0].dtype.name, shape=arrays[0].shape)
    leaves = [one for one in operands if one.dtype.startswith("float")]
    found = pytensor.grad(None, leaves, known_grads={out: gradient})
    return pytensor.function([gradient, *operands], found, on_unused_input="ignore")


OPERATORS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "hadamard": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "scale": lambda alpha, a: np.float32(alpha) * a,
    "exp": lambda a: pt.exp(a),
    "log": lambda a: pt.log(a),
    "sigmoid": lambda a: pt.sigmoid(a),
    "tanh": lambda a: pt.tanh(a),
    "relu": lambda a: pt.maximum(a, np.float32(0)),
    "dot": lambda a, b: pt.matmul(a, b),
    "add_bias": lambda a, b: a + b,
    "sum": lambda a: pt.sum(a),
    "mean": lambda a: pt.mean(a),
    "max": lambda a: pt.max(a),
    "softmax": lambda a: pt.special.softmax(a, axis=-1),
    "log_softmax": lambda a: pt.special.log_softmax(a, axis=-1),
    "squared_error": lambda a, b: pt.mean((a - b) ** 2),
}
