"""Small networks, written with `op` alone, that several tests trace."""

from typing import Any

import numpy as np

from pareo import op


def draw(*shapes: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> list[Any]:
    """Random arrays, small enough to keep sigmoids alive."""
    random = np.random.default_rng(seed)
    return [(random.standard_normal(shape) * 0.5).astype(dtype) for shape in shapes]


def papers_cnn(dtype: Any = np.float32, batch: int = 4) -> tuple[Any, list[Any]]:
    """The first paper's network as a loss of (x, labels, parameters...), and arguments for it."""
    labels = np.arange(batch) % 10

    def loss(x: Any, labels: Any, w: Any, b: Any, v: Any, c: Any, dense: Any, bias: Any) -> Any:
        h = op.sigmoid(op.add_bias(op.conv(x, w), b))
        h = op.sigmoid(op.subsample(h, v, c, stride=4))
        h = op.reshape(h, (x.shape[0], 216))
        return op.cross_entropy(op.add_bias(op.dot(h, dense), bias), labels)

    x, *parameters = draw(
        (batch, 1, 28, 28), (6, 1, 5, 5), (6,), (4, 4), (), (216, 10), (10,), dtype=dtype
    )
    return loss, [x, labels, *parameters]


def mlp(activation: str, dtype: Any = np.float32, batch: int = 6) -> tuple[Any, list[Any]]:
    """Two dense layers as a loss of (x, labels, parameters...), and arguments for it."""
    act = getattr(op, activation)
    labels = np.arange(batch) % 5

    def loss(x: Any, labels: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
        h = act(op.add_bias(op.dot(x, w), b))
        return op.cross_entropy(op.add_bias(op.dot(h, v), c), labels)

    x, *parameters = draw((batch, 7), (7, 8), (8,), (8, 5), (5,), dtype=dtype)
    return loss, [x, labels, *parameters]
