"""pareo's operators in PyTorch, for losses and for layers of the user's own."""

from importlib import import_module
from typing import Any

from pareo.lab.contestants.programs import COMMON, Operators, over

torch: Any  # imported by `load`, when needed
functional: Any


def load() -> Operators:
    """Import PyTorch for this module; the operators."""
    global torch, functional
    torch, functional = import_module("torch"), import_module("torch.nn.functional")
    return OPERATORS


def constant(array: Any, place: str) -> Any:
    """An array as a tensor in a place."""
    return torch.from_numpy(array.copy()).to(place)


def _cross_entropy(logits: Any, labels: Any) -> Any:
    if logits.ndim == 2:
        return functional.cross_entropy(logits, labels)
    logs = torch.log_softmax(logits, -1).gather(-1, labels[..., None])
    return -logs.mean((-2, -1))


def _pad(a: Any, widths: Any, value: float) -> Any:
    return functional.pad(a, [side for pair in reversed(widths) for side in pair], value=value)


OPERATORS: Operators = {
    **COMMON,
    "exp": lambda a: torch.exp(a),
    "log": lambda a: torch.log(a),
    "sigmoid": lambda a: torch.sigmoid(a),
    "tanh": lambda a: torch.tanh(a),
    "relu": lambda a: torch.relu(a),
    "gelu": lambda a, approximate: functional.gelu(
        a, approximate="tanh" if approximate else "none"
    ),
    "silu": lambda a: functional.silu(a),
    "hard_sigmoid": lambda a: functional.hardsigmoid(a),
    "hard_swish": lambda a: functional.hardswish(a),
    "leaky_relu": lambda a, slope: functional.leaky_relu(a, slope),
    "clip": lambda a, low, high: functional.hardtanh(a, low, high),
    "softmax": lambda a, axis: torch.softmax(a, axis),
    "log_softmax": lambda a, axis: torch.log_softmax(a, axis),
    "sum": over(lambda a, axis, keep: torch.sum(a, axis, keep)),
    "mean": over(lambda a, axis, keep: torch.mean(a, axis, keep)),
    "max": over(lambda a, axis, keep: torch.amax(a, axis, keep)),
    "argmax": lambda a, axis: torch.argmax(a, axis),
    "norm": lambda *arrays: torch.sqrt(sum((a * a).sum() for a in arrays)),
    "reshape": lambda a, shape: a.reshape(shape),
    "transpose": lambda a, axes: a.permute(axes),
    "broadcast": lambda a, shape: a.expand(shape),
    "concat": lambda *arrays, axis: torch.cat(arrays, axis),
    "split": lambda a, sizes, axis: torch.split(a, sizes, axis),
    "pad": _pad,
    "take": lambda a, index: functional.embedding(index, a) if a.ndim == 2 else a[index],
    "cross_entropy": _cross_entropy,
    "squared_error": lambda a, b: functional.mse_loss(a, b),
    "binary-cross-entropy": lambda a, b: functional.binary_cross_entropy_with_logits(a, b),
}
