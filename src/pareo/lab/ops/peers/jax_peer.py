"""JAX's operators, jitted; backward is the jitted pullback of forward's."""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from pareo.lab.ops.peers.peer import Missing
from pareo.lab.ops.work import FORWARD, Work

jax: Any = None  # imported when needed
jnp: Any = None


class Jax:
    """JAX, on the CPU or, as 'cuda', on a GPU; float32 is IEEE's on both."""

    def __init__(self, place: str) -> None:
        global jax, jnp
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # others need memory, too
        jax, jnp = import_module("jax"), import_module("jax.numpy")
        jax.config.update("jax_platforms", place or "cpu")
        jax.config.update("jax_default_matmul_precision", "highest")
        self._pulled = jax.jit(lambda pullback, gradient: pullback(gradient))
        self._wait_each = place != "cuda"  # on the CPU, two calls may overlap
        self._last: Any = None
        self._jitted: dict[Any, Any] = {}

    def call(self, work: Work, arrays: list[Any]) -> Callable[[], Any]:
        """A function that does the work on these arrays."""
        if work.case.operator.name not in OPERATORS:
            raise Missing(f"JAX has no {work.case.operator.name}")
        here = [jnp.array(array) for array in arrays]
        jitted, given = self._prepared(work, here)

        def run() -> Any:
            self._last = jitted(*given)
            if self._wait_each:
                jax.block_until_ready(self._last)
            return self._last

        return run

    def _prepared(self, work: Work, arrays: list[Any]) -> tuple[Any, Any]:
        """A jitted function, one for all sets of arrays, and its arguments."""
        if work not in self._jitted:
            self._jitted = {work: _jitted(work)}
        jitted = self._jitted[work]
        if work.direction == FORWARD:
            return jitted, arrays
        gradient, _, *operands = arrays
        return self._pulled, (jitted(*operands), gradient)

    def wait(self) -> None:
        """Wait until all calls have finished."""
        jax.block_until_ready(self._last)

    def host(self, result: Any) -> Any:
        """A result as a NumPy array."""
        return import_module("numpy").asarray(result)


def _jitted(work: Work) -> Any:
    """Forward, or a function that returns its pullback; jitted once for all sets of arrays."""
    case, function = work.case, OPERATORS[work.case.operator.name]

    def forward(*operands: Any) -> Any:
        return function(*case.filled(operands), **case.attributes)

    def pullback(*operands: Any) -> Any:
        floats = [jnp.issubdtype(operand.dtype, jnp.floating) for operand in operands]

        def of_floats(*chosen: Any) -> Any:
            left = iter(chosen)
            pairs = zip(operands, floats, strict=True)
            return forward(*(next(left) if real else operand for operand, real in pairs))

        chosen = [operand for operand, real in zip(operands, floats, strict=True) if real]
        return jax.vjp(of_floats, *chosen)[1]

    return jax.jit(forward if work.direction == FORWARD else pullback)


def _conv(x: Any, w: Any, padding: int) -> Any:
    around = [(padding, padding)] * 2
    layout = ("NCHW", "OIHW", "NCHW")
    return jax.lax.conv_general_dilated(x, w, (1, 1), around, dimension_numbers=layout)


def _pool(start: float, fold: str, mean: bool) -> Callable[..., Any]:
    def pool(x: Any, size: int) -> Any:
        window = (1, 1, size, size)
        found = jax.lax.reduce_window(x, start, getattr(jax.lax, fold), window, window, "VALID")
        return found / (size * size) if mean else found

    return pool


def _cross_entropy(logits: Any, labels: Any) -> Any:
    logs = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(logs, labels[:, None], axis=1))


def _layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    mean = jnp.mean(x, -1, keepdims=True)
    inverse = jax.lax.rsqrt(jnp.mean(jnp.square(x - mean), -1, keepdims=True) + 1e-5)
    return (x - mean) * inverse * scale + shift


def _sgd(p: Any, g: Any, v: Any, rate: float, momentum: float, decay: float) -> Any:
    moved = momentum * v + g + decay * p
    return p - rate * moved, moved


OPERATORS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "hadamard": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "scale": lambda alpha, a: alpha * a,
    "exp": lambda a: jnp.exp(a),
    "log": lambda a: jnp.log(a),
    "sigmoid": lambda a: jax.nn.sigmoid(a),
    "tanh": lambda a: jnp.tanh(a),
    "relu": lambda a: jnp.maximum(a, 0),
    "dot": lambda a, b: a @ b,
    "transpose": lambda a: a.T,
    "add_bias": lambda a, b: a + b,
    "concat": lambda arrays, axis: jnp.concatenate(arrays, axis),
    "part": lambda a, axis, between: jax.lax.slice_in_dim(a, *between, axis=axis),
    "broadcast": lambda a, shape: jnp.broadcast_to(a, shape),
    "conv": _conv,
    "max_pool": _pool(float("-inf"), "max", mean=False),
    "average_pool": _pool(0.0, "add", mean=True),
    "sum": lambda a: jnp.sum(a),
    "mean": lambda a: jnp.mean(a),
    "max": lambda a: jnp.max(a),
    "argmax": lambda a: jnp.argmax(a),
    "softmax": lambda a: jax.nn.softmax(a),
    "log_softmax": lambda a: jax.nn.log_softmax(a),
    "cross_entropy": _cross_entropy,
    "gelu": lambda a: jax.nn.gelu(a, approximate=False),
    "silu": lambda a: jax.nn.silu(a),
    "hard_sigmoid": lambda a: jax.nn.hard_sigmoid(a),
    "hard_swish": lambda a: jax.nn.hard_swish(a),
    "leaky_relu": lambda a, slope: jax.nn.leaky_relu(a, slope),
    "clip": lambda a, low, high: jnp.clip(a, low, high),
    "layer_norm": _layer_norm,
    "pad": lambda a, widths: jnp.pad(a, widths),
    "take": lambda a, index: a[index],
    "squared_error": lambda a, b: jnp.mean(jnp.square(a - b)),
    "sgd": _sgd,
    "sigmoid_gradient": lambda g, y: g * y * (1 - y),
    "tanh_gradient": lambda g, y: g * (1 - y * y),
    "relu_gradient": lambda g, y: jnp.where(y > 0, g, 0),
}
