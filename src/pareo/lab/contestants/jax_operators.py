"""pareo's operators in JAX, for losses and for layers of the user's own."""

from importlib import import_module
from typing import Any

import numpy as np

from pareo.lab.contestants.programs import COMMON, Operators, over

jax: Any  # imported by `load`, when needed
jnp: Any


def load() -> Operators:
    """Import JAX for this module; the operators."""
    global jax, jnp
    jax, jnp = import_module("jax"), import_module("jax.numpy")
    return OPERATORS


def _cross_entropy(logits: Any, labels: Any) -> Any:
    # A product with ones and zeros: its gradient is no scatter, which is slow on a CPU.
    chances = jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, logits.shape[-1])
    return -jnp.mean(jnp.sum(chances, -1), -1)


def _split(a: Any, sizes: Any, axis: int) -> Any:
    return jnp.split(a, np.cumsum(sizes)[:-1], axis)


def _binary(a: Any, b: Any) -> Any:
    return -jnp.mean(b * jax.nn.log_sigmoid(a) + (1 - b) * jax.nn.log_sigmoid(-a))


OPERATORS: Operators = {
    **COMMON,
    "exp": lambda a: jnp.exp(a),
    "log": lambda a: jnp.log(a),
    "sigmoid": lambda a: jax.nn.sigmoid(a),
    "tanh": lambda a: jnp.tanh(a),
    "relu": lambda a: jax.nn.relu(a),
    "gelu": lambda a, approximate: jax.nn.gelu(a, approximate),
    "silu": lambda a: jax.nn.silu(a),
    "hard_sigmoid": lambda a: jax.nn.hard_sigmoid(a),
    "hard_swish": lambda a: jax.nn.hard_swish(a),
    "leaky_relu": lambda a, slope: jax.nn.leaky_relu(a, slope),
    "clip": lambda a, low, high: jnp.clip(a, low, high),
    "softmax": lambda a, axis: jax.nn.softmax(a, axis),
    "log_softmax": lambda a, axis: jax.nn.log_softmax(a, axis),
    "sum": over(lambda a, axis, keep: jnp.sum(a, axis, keepdims=keep)),
    "mean": over(lambda a, axis, keep: jnp.mean(a, axis, keepdims=keep)),
    "max": over(lambda a, axis, keep: jnp.max(a, axis, keepdims=keep)),
    "argmax": lambda a, axis: jnp.argmax(a, axis),
    "norm": lambda *arrays: jnp.sqrt(sum(jnp.sum(a * a) for a in arrays)),
    "reshape": lambda a, shape: jnp.reshape(a, shape),
    "transpose": lambda a, axes: jnp.transpose(a, axes),
    "broadcast": lambda a, shape: jnp.broadcast_to(a, shape),
    "concat": lambda *arrays, axis: jnp.concatenate(arrays, axis),
    "split": _split,
    "pad": lambda a, widths, value: jnp.pad(a, widths, constant_values=value),
    "take": lambda a, index: a[index],
    "cross_entropy": _cross_entropy,
    "squared_error": lambda a, b: jnp.mean(jnp.square(a - b)),
    "binary-cross-entropy": _binary,
}
