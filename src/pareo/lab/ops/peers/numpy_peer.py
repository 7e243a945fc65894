"""The operators of NumPy and of CuPy, which share names. Neither differentiates: forward only."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from pareo.backends import blas
from pareo.lab.ops.peers.peer import Missing
from pareo.lab.ops.work import FORWARD, Work


class NumpyLike:
    """NumPy, or CuPy on its own stream."""

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._xp = import_module(name)
        if name == "numpy":
            blas.threads(threads)

    def call(self, work: Work, arrays: list[Any]) -> Callable[[], Any]:
        """A function that does the work on these arrays, into arrays that are made once."""
        xp, case, name = self._xp, work.case, work.case.operator.name
        if work.direction != FORWARD:
            raise Missing(f"{self._name} does not differentiate")
        if name not in OPERATORS:
            raise Missing(f"{self._name} has no {name}")
        operands = case.filled([xp.asarray(array) for array in arrays])
        outs = [xp.empty(spec.shape, spec.dtype) for spec in work.results()]
        function = OPERATORS[name]

        def run() -> list[Any]:
            function(xp, outs[0], *operands, **case.attributes)
            return outs

        return run

    def wait(self) -> None:
        """Wait until the GPU has finished."""
        if self._name == "cupy":
            self._xp.cuda.get_current_stream().synchronize()

    def host(self, result: Any) -> Any:
        """A result as a NumPy array."""
        return result.get() if self._name == "cupy" else result


def _sigmoid(xp: Any, out: Any, a: Any) -> None:
    """In place, one pass for each operation: the fastest way in plain NumPy."""
    xp.negative(a, out=out)
    xp.exp(out, out=out)
    xp.add(out, 1, out=out)
    xp.reciprocal(out, out=out)


def _softmax(xp: Any, out: Any, a: Any) -> None:
    xp.subtract(a, a.max(axis=-1, keepdims=True), out=out)
    xp.exp(out, out=out)
    out /= out.sum(axis=-1, keepdims=True)


def _part(xp: Any, out: Any, a: Any, axis: int, between: tuple[int, int]) -> None:
    assert axis == 1
    xp.copyto(out, a[:, slice(*between)])


def _fold(name: str) -> Callable[..., None]:
    def fold(xp: Any, out: Any, a: Any) -> None:
        getattr(xp, name)(a, out=out)

    return fold


def _ufunc(name: str) -> Callable[..., None]:
    def call(xp: Any, out: Any, *operands: Any) -> None:
        getattr(xp, name)(*operands, out=out)

    return call


OPERATORS: dict[str, Callable[..., None]] = {
    "add": _ufunc("add"),
    "sub": _ufunc("subtract"),
    "hadamard": _ufunc("multiply"),
    "div": _ufunc("divide"),
    "scale": lambda xp, out, alpha, a: xp.multiply(a, xp.float32(alpha), out=out),
    "exp": _ufunc("exp"),
    "log": _ufunc("log"),
    "sigmoid": _sigmoid,
    "tanh": _ufunc("tanh"),
    "relu": lambda xp, out, a: xp.maximum(a, xp.float32(0), out=out),
    "dot": _ufunc("matmul"),
    "transpose": lambda xp, out, a: xp.copyto(out, a.T),
    "add_bias": _ufunc("add"),
    "concat": lambda xp, out, arrays, axis: xp.concatenate(arrays, axis=axis, out=out),
    "part": _part,
    "broadcast": lambda xp, out, a, shape: xp.copyto(out, a),
    "sum": _fold("sum"),
    "mean": _fold("mean"),
    "max": _fold("max"),
    "argmax": _fold("argmax"),
    "softmax": _softmax,
    "squared_error": lambda xp, out, a, b: xp.mean(xp.square(a - b), out=out),
}
