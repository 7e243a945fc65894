"""Dense layers in pairs, each worker with some of the neurons between the two.

The first matrix of a pair is split by columns, the second by rows:

    h = act(x @ w[:, mine] + b[mine])        nobody else's neurons are needed
    y = sum over workers of h @ v[mine]      the one thing that has to be added up

so a pair costs one sum of a batch's outputs on the way forward, and one of its inputs on the way
back. A layer that is left over is split by rows alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.nn.layers import (
    Context,
    Dense,
    Dropout,
    Flatten,
    Layer,
    Parameter,
    ReLU,
    Sigmoid,
    Tanh,
)
from pareo.nn.network import Sequential
from pareo.parallel.pipeline.stage import Traced, traced
from pareo.program import Program, trace
from pareo.spec import Spec

BETWEEN = (Dropout, Flatten, ReLU, Sigmoid, Tanh)  # each element by itself, or none at all
Between = tuple[int, int]


@dataclass(frozen=True)
class Segment:
    """A pair of dense layers, or one, with the layers before each, and the shape that comes in.

    pair: the paths of the layers ('1', '3'), or of the one
    split: how many neurons, or inputs of the one, are shared out
    """

    shape: tuple[int, ...]
    before: tuple[Layer, ...]
    pair: tuple[str, ...]
    inner: tuple[Layer, ...]
    split: int
    outputs: int

    def parts(self, mine: Between, first: bool) -> dict[str, tuple[slice, ...]]:
        """Which part of each parameter is a worker's own; the `first` adds the last bias."""
        own, whole = slice(*mine), slice(None)
        found: dict[str, tuple[slice, ...]] = {}
        if len(self.pair) == 2:
            found |= {f"{self.pair[0]}.w": (whole, own), f"{self.pair[0]}.b": (own,)}
        found[f"{self.pair[-1]}.w"] = (own, whole)
        if first:
            found[f"{self.pair[-1]}.b"] = (whole,)
        return found


def segments(network: Sequential, workers: int) -> tuple[list[Segment], tuple[Layer, ...]]:
    """A network's dense layers in segments, and the layers that follow the last of them."""
    found: list[Segment] = []
    waiting: list[Layer] = []
    open_pair: tuple[tuple[int, ...], tuple[Layer, ...], str, int] | None = None
    shape = start = network.inputs
    dense = sum(isinstance(layer, Dense) for layer in network.layers)
    for number, layer in enumerate(network.layers):
        if not isinstance(layer, (Dense, *BETWEEN)):
            raise ShapeError(
                f"a split by neurons takes dense layers; {network.name} has {layer.label}: "
                "split its data, or its layers in a pipeline"
            )
        if not isinstance(layer, Dense):
            waiting.append(layer)
        elif open_pair is None and dense > 1:
            open_pair, waiting = (start, tuple(waiting), str(number), layer.units), []
            dense -= 1
        else:
            made = _closed(open_pair, start, tuple(waiting), str(number), shape[0], layer.units)
            found.append(made)
            open_pair, waiting, start = None, [], (layer.units,)
            dense -= 1
        shape = layer.output(shape)
    for segment in found:
        if segment.split < workers:
            raise ShapeError(
                f"{workers} workers cannot share {segment.split} neurons of {network.name}"
            )
    return found, tuple(waiting)


def _closed(
    open_pair: Any, start: tuple[int, ...], waiting: tuple[Layer, ...], path: str,
    inputs: int, units: int,
) -> Segment:  # fmt: skip
    if open_pair is None:
        return Segment(start, waiting, (path,), (), inputs, units)
    shape, before, first, split = open_pair
    return Segment(shape, before, (first, path), waiting, split, units)


@dataclass(frozen=True)
class Mine:
    """One worker's share of a segment: from the whole input to its part of the sum.

    between: its neurons; first: whether it adds the last bias
    """

    segment: Segment
    between: Between
    first: bool

    def specs(self, parameters: Mapping[str, Parameter], dtype: str) -> dict[str, Spec]:
        """The parts of the parameters that are its own."""
        return {
            path: Spec(np.empty(parameters[path].shape, np.bool_)[part].shape, dtype)
            for path, part in self.segment.parts(self.between, self.first).items()
        }

    def apply(self, given: Any, x: Any, context: Context) -> Any:
        """What it does to a batch."""
        segment = self.segment
        last = segment.pair[-1]
        for layer in segment.before:
            x = layer.apply({}, x, context)
        if len(segment.pair) == 2:
            x = op.add_bias(op.dot(x, given[f"{segment.pair[0]}.w"]), given[f"{segment.pair[0]}.b"])
            for layer in segment.inner:
                x = _on_some(layer, x, segment.split, self.between, context)
        else:
            x = op.part(x, 1, self.between)
        y = op.dot(x, given[f"{last}.w"])
        return op.add_bias(y, given[f"{last}.b"]) if self.first else y

    def traced(self, own: dict[str, Spec], rows: int, wants_before: bool) -> Traced:
        """Its programs in training, forward and back."""
        segment, dtype = self.segment, next(iter(own.values())).dtype
        seeds = tuple(Spec((), "int64") for _ in range(dropouts([segment], ())[0]))
        return traced(
            lambda given, x, *seeds: (self.apply(given, x, Context(True, iter(seeds))),),
            own, Spec((rows, *segment.shape), dtype), seeds, wants_before,
        )  # fmt: skip

    def forward(self, own: dict[str, Spec], rows: int) -> Program:
        """Its program in testing."""
        x = Spec((rows, *self.segment.shape), next(iter(own.values())).dtype)
        return trace(lambda given, x: self.apply(given, x, Context()), own, x)


def _on_some(layer: Layer, x: Any, width: int, mine: Between, context: Context) -> Any:
    """A layer on some of the neurons; dropout drops what it would drop on all of them."""
    if not isinstance(layer, Dropout) or not context.training:
        return layer.apply({}, x, context)
    ones = x.recorder.constant(np.ones((x.shape[0], width), x.dtype))
    mask = op.dropout(ones, layer.rate, next(context.seeds))
    return op.hadamard(x, op.part(mask, 1, mine))


def dropouts(found: Sequence[Segment], after: Sequence[Layer]) -> list[int]:
    """How many seeds each segment takes, and the layers after them."""
    each = [(*segment.before, *segment.inner) for segment in found]
    return [sum(isinstance(layer, Dropout) for layer in layers) for layers in (*each, after)]
