"""tinygrad's operators, replayed by TinyJit; backward is its own gradient."""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from pareo.lab.ops.peers.peer import Missing
from pareo.lab.ops.work import FORWARD, Work

tinygrad: Any = None  # imported when needed
PLACE = "CPU"


class Tinygrad:
    """tinygrad on the CPU, with kernels that clang compiles."""

    def __init__(self, threads: int) -> None:
        global tinygrad
        os.environ["CPU_COUNT"] = str(threads)
        tinygrad = import_module("tinygrad")
        self._jitted: dict[Work, Any] = {}

    def call(self, work: Work, arrays: list[Any]) -> Callable[[], Any]:
        """A function that does the work on these arrays."""
        if work.case.operator.name not in OPERATORS:
            raise Missing(f"tinygrad has no {work.case.operator.name} here")
        if work not in self._jitted:
            self._jitted = {work: tinygrad.TinyJit(_function(work))}
        function = self._jitted[work]
        here = [tinygrad.Tensor(a, device=PLACE).realize() for a in arrays]
        return lambda: function(*here)

    def wait(self) -> None:
        """Wait until all calls have finished."""
        tinygrad.Device[PLACE].synchronize()

    def host(self, result: Any) -> Any:
        """A result as a NumPy array."""
        return np.array(result.numpy())


def _function(work: Work) -> Callable[..., Any]:
    case, function = work.case, OPERATORS[work.case.operator.name]

    def forward(*operands: Any) -> Any:
        return function(*case.filled(operands), **case.attributes).realize()

    def backward(gradient: Any, _: Any, *operands: Any) -> Any:
        result = function(*case.filled(operands), **case.attributes)
        leaves = [one for one in operands if one.is_floating_point()]
        found = result.gradient(*leaves, gradient=gradient)
        found[0].realize(*found[1:])
        return tuple(found)

    return forward if work.direction == FORWARD else backward


OPERATORS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "hadamard": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "scale": lambda alpha, a: a * alpha,
    "exp": lambda a: a.exp(),
    "log": lambda a: a.log(),
    "sigmoid": lambda a: a.sigmoid(),
    "tanh": lambda a: a.tanh(),
    "relu": lambda a: a.relu(),
    "dot": lambda a, b: a @ b,
    "transpose": lambda a: a.T.contiguous(),
    "add_bias": lambda a, b: a + b,
    "conv": lambda x, w, padding: x.conv2d(w, padding=padding),
    "max_pool": lambda x, size: x.max_pool2d((size, size)),
    "average_pool": lambda x, size: x.avg_pool2d((size, size)),
    "sum": lambda a: a.sum(),
    "mean": lambda a: a.mean(),
    "max": lambda a: a.max(),
    "softmax": lambda a: a.softmax(-1),
    "log_softmax": lambda a: a.log_softmax(-1),
    "squared_error": lambda a, b: (a - b).square().mean(),
}
