"""pareo's operators in TensorFlow, for losses and for layers of the user's own."""

from importlib import import_module
from typing import Any

from pareo.lab.contestants.programs import COMMON, Operators, over

tf: Any  # imported by `load`, when needed


def load() -> Operators:
    """Import TensorFlow for this module; the operators."""
    global tf
    tf = import_module("tensorflow")
    return OPERATORS


def _cross_entropy(logits: Any, labels: Any) -> Any:
    rows = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(rows, -1)


def _binary(a: Any, b: Any) -> Any:
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=b, logits=a))


def _argmax(a: Any, axis: int | None) -> Any:
    return tf.argmax(tf.reshape(a, [-1]) if axis is None else a, axis or 0)


OPERATORS: Operators = {
    **COMMON,
    "exp": lambda a: tf.exp(a),
    "log": lambda a: tf.math.log(a),
    "sigmoid": lambda a: tf.sigmoid(a),
    "tanh": lambda a: tf.tanh(a),
    "relu": lambda a: tf.nn.relu(a),
    "gelu": lambda a, approximate: tf.nn.gelu(a, approximate),
    "silu": lambda a: tf.nn.silu(a),
    "hard_sigmoid": lambda a: tf.nn.relu6(a + 3) / 6,
    "hard_swish": lambda a: a * tf.nn.relu6(a + 3) / 6,
    "leaky_relu": lambda a, slope: tf.nn.leaky_relu(a, slope),
    "clip": lambda a, low, high: tf.clip_by_value(a, low, high),
    "softmax": lambda a, axis: tf.nn.softmax(a, axis),
    "log_softmax": lambda a, axis: tf.nn.log_softmax(a, axis),
    "sum": over(lambda a, axis, keep: tf.reduce_sum(a, axis, keep)),
    "mean": over(lambda a, axis, keep: tf.reduce_mean(a, axis, keep)),
    "max": over(lambda a, axis, keep: tf.reduce_max(a, axis, keep)),
    "argmax": _argmax,
    "norm": lambda *arrays: tf.sqrt(tf.add_n([tf.reduce_sum(a * a) for a in arrays])),
    "reshape": lambda a, shape: tf.reshape(a, shape),
    "transpose": lambda a, axes: tf.transpose(a, axes),
    "broadcast": lambda a, shape: tf.broadcast_to(a, shape),
    "concat": lambda *arrays, axis: tf.concat(arrays, axis),
    "split": lambda a, sizes, axis: tf.split(a, sizes, axis),
    "pad": lambda a, widths, value: tf.pad(a, widths, constant_values=value),
    "take": lambda a, index: tf.gather(a, index),
    "cross_entropy": _cross_entropy,
    "squared_error": lambda a, b: tf.reduce_mean(tf.square(a - b)),
    "binary-cross-entropy": _binary,
}
