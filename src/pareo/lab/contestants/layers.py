"""What adapters share: networks without dropout, and windows of pooling."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo.lab.contestants.task import Array
from pareo.nn.calls import (
    NORMALISATIONS,
    PRODUCTS,
    SHAPES,
    TABLES,
    TOKENS,
    Calls,
    pair,
    total_loss,
    unknown,
)
from pareo.nn.containers import Add, Append, Branches, Gate, Multiply, Residual
from pareo.nn.graph import Graph
from pareo.nn.layers import AveragePool, Dropout, Identity, Layer, MaxPool, StochasticDepth
from pareo.nn.network import Auxiliary, Sequential
from pareo.nn.pooling import shared_windows

__all__ = [
    "NORMALISATIONS", "PRODUCTS", "SHAPES", "TABLES", "TOKENS", "Calls", "Window",
    "pair", "shares", "total_loss", "unknown", "without_dropout",
]  # fmt: skip


def without_dropout(network: Sequential) -> Sequential:
    """The network without its Dropout layers, whose masks differ between frameworks.

    >>> from pareo.nn import networks
    >>> without_dropout(networks.googlenet(auxiliary=True)).seeds()
    0
    """
    kept = _kept(network)
    assert isinstance(kept, Sequential)
    return kept


def _kept(layer: Layer) -> Layer | None:
    """A layer without the Dropout inside it; None for one that is Dropout itself."""
    match layer:
        case Dropout() | StochasticDepth():
            return None
        case Sequential():
            named = (
                (name, _kept(part)) for name, part in zip(layer.names, layer.layers, strict=True)
            )
            kept = [(name, part) for name, part in named if part is not None]
            return Sequential(_renumbered(layer, kept), layer.input_shape, layer.name)
        case Graph():
            nodes = [
                (
                    n.name,
                    (n.what if isinstance(n.what, str) else _kept(n.what) or Identity(), *n.reads),
                )
                for n in layer.nodes
            ]
            return Graph(nodes)
        case Auxiliary():
            return Auxiliary(without_dropout(layer.head), layer.weight)
        case Branches() | Add() | Multiply():
            return type(layer)(*map(_kept, layer.branches))
        case Residual() | Gate() | Append():
            shortcut = None if layer.shortcut is None else _kept(layer.shortcut) or Identity()
            return type(layer)(_kept(layer.body), shortcut, layer.activation, layer.shortcut_name)
    return layer


def _renumbered(layer: Sequential, kept: list[tuple[str, Layer]]) -> list[Any]:
    """Layers without names are numbered again; those with names keep them."""
    return [part for _, part in kept] if layer.numbered else kept


def shares(pixels: int, count: int) -> Array:
    """A matrix whose product with a row of pixels is the means of windows that share it out.

    >>> shares(3, 2)
    array([[0.5, 0. ],
           [0.5, 0.5],
           [0. , 0.5]], dtype=float32)
    """
    found = np.zeros((pixels, count), np.float32)
    for number, (start, end) in enumerate(zip(*shared_windows(pixels, count), strict=True)):
        found[start:end, number] = 1 / (end - start)
    return found


@dataclass(frozen=True)
class Window:
    """The windows of a pooling layer over one image, for frameworks without `ceil`.

    `padding` is ((top, bottom), (left, right)), enough for the last window. `counts` is the number
    of pixels that count in each window: those of the image, or those of `counts_padding`.
    """

    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    counts: Array

    @classmethod
    def of(cls, layer: MaxPool | AveragePool, image: tuple[int, int]) -> "Window":
        """The windows of a layer over an image of this height and width.

        >>> from pareo.nn import MaxPool
        >>> Window.of(MaxPool(3, 2, ceil=True), (8, 8)).padding
        ((0, 1), (0, 1))
        """
        size = pair(layer.size)
        stride = size if layer.stride is None else pair(layer.stride)
        before = pair(layer.padding)
        outputs = layer.output((1, *image))[1:]
        padding, counts = [], []
        for axis in (0, 1):
            starts = np.arange(outputs[axis]) * stride[axis] - before[axis]
            ends = np.minimum(starts + size[axis], image[axis])
            counts.append(ends - np.maximum(starts, 0))
            padding.append((before[axis], max(0, int(starts[-1]) + size[axis] - image[axis])))
        counted = np.outer(*counts)
        if isinstance(layer, AveragePool) and layer.counts_padding:
            counted = layer.counts(image)[1]
        return cls(size, stride, (padding[0], padding[1]), counted.astype(np.float32))
