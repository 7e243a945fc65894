"""Operands for the operators of today's networks; `cases` has the others."""

from collections.abc import Callable
from typing import Any

from pareo.lab.ops.operands import CLASSES, ROW, Labels, Values, images, rows, same

HEADS, QUERIES, WIDTH = 8, 256, 64  # of attention
WIDE = (-4.0, 4.0)


def _activation(**how: Any) -> Callable[[int], Any]:
    return lambda floats: ((Values(rows(floats, 2), *WIDE),), how)


def _activation_gradient(**how: Any) -> Callable[[int], Any]:
    return lambda floats: ((Values(rows(floats, 3)), Values(rows(floats, 3), *WIDE)), how)


def _batch_norm(arrays: int, vectors: int) -> Callable[[int], Any]:
    """Images, and vectors that are above 0, as variances are."""

    def maker(floats: int) -> Any:
        x = Values(images(floats, 64, 56, 1 / (arrays + 1)))
        return ((x,) * arrays + (Values((64,), 0.5, 1.5),) * vectors), {}

    return maker


def _layer_norm(arrays: int, vectors: int) -> Callable[[int], Any]:
    def maker(floats: int) -> Any:
        x = Values(rows(floats, arrays + 1))
        return ((x,) * arrays + (Values((ROW,), 0.5, 1.5),) * vectors), {}

    return maker


def _attention(arrays: int, results: int) -> Callable[[int], Any]:
    """g, q, k, v and y have one shape; the last array is the logarithms of sums."""

    def maker(floats: int) -> Any:
        count = max(1, round(floats / ((arrays + results) * HEADS * QUERIES * WIDTH)))
        one = Values((count, HEADS, QUERIES, WIDTH))
        sums = Values((count, HEADS, QUERIES), 5.5, 6.0)
        return ((one,) * arrays + ((sums,) if results > 1 else ())), {}

    return maker


def _take(floats: int) -> Any:
    count = max(1, (floats - CLASSES * ROW) // ROW)
    return (Values((CLASSES, ROW)), Labels((count,))), {}


def _take_gradient(floats: int) -> Any:
    count = max(1, (floats - CLASSES * ROW) // ROW)
    return (Values((count, ROW)), Labels((count,))), {"size": CLASSES}


def _pad(floats: int) -> Any:
    return (Values(rows(floats, 2)),), {"widths": ((0, 0), (8, 8))}


def _split(floats: int) -> Any:
    return (Values(rows(floats, 2)),), {"sizes": (ROW // 2, ROW // 2), "axis": 1}


def _augment(floats: int) -> Any:
    return (Values(images(floats, 3, 32, 0.5)),), {"seed": 7, "flip": True, "crop": 4}


MAKERS: dict[str, Callable[[int], Any]] = {
    "gelu": _activation(),
    "silu": _activation(),
    "hard_sigmoid": _activation(),
    "hard_swish": _activation(),
    "leaky_relu": _activation(slope=0.01),
    "clip": _activation(low=0.0, high=3.0),
    "batch_norm": _batch_norm(1, 2),
    "batch_norm_inference": _batch_norm(1, 4),
    "layer_norm": _layer_norm(1, 2),
    "attention_with_sums": _attention(3, 1),
    "pad": _pad,
    "split": _split,
    "take": _take,
    "norm": same(2, of=2),
    "augment": _augment,
    "adam": lambda floats: ((*((Values(rows(floats, 7), 0.0, 1.0),) * 4), 0.01), {}),
    "lion": lambda floats: ((*((Values(rows(floats, 5)),) * 3), 0.01), {}),
    "gelu_gradient": _activation_gradient(),
    "silu_gradient": _activation_gradient(),
    "hard_sigmoid_gradient": _activation_gradient(),
    "hard_swish_gradient": _activation_gradient(),
    "leaky_relu_gradient": _activation_gradient(slope=0.01),
    "clip_gradient": _activation_gradient(low=0.0, high=3.0),
    "batch_norm_gradient": _batch_norm(2, 3),
    "layer_norm_gradient": _layer_norm(2, 1),
    "attention_gradient": _attention(5, 3),
    "take_gradient": _take_gradient,
}
