"""Dense layers in pairs, each worker with some of the neurons between the two.

The first matrix of a pair is split by columns, the second by rows:

    h = act(x @ w[:, own] + b[own])          needs no other worker's neurons
    y = sum over workers of h @ v[own]       needs one all-reduce

So a pair costs one sum over the workers in the forward pass, of its outputs, and one in the
backward pass, of the gradients of its inputs. A layer without a partner is split by rows.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.nn.activations import (
    GELU,
    Clip,
    HardSigmoid,
    HardSwish,
    LeakyReLU,
    ReLU,
    Sigmoid,
    SiLU,
    Tanh,
)
from pareo.nn.layers import Context, Dense, Dropout, Flatten, Identity, Layer, Parameter
from pareo.nn.network import Sequential
from pareo.parallel.group.forward_backward import TracedPart, trace_part
from pareo.program import Program, trace
from pareo.spec import Spec

ELEMENTWISE = (  # Flatten changes only the shape
    Dropout, Flatten, Identity, ReLU, Sigmoid, Tanh, LeakyReLU, Clip, GELU, SiLU, HardSigmoid,
    HardSwish,
)  # fmt: skip
Interval = tuple[int, int]  # start and end


@dataclass(frozen=True)
class Segment:
    """A pair of dense layers, or a single one, with the layers before each.

    shape:   of the inputs
    before:  the layers before the first dense layer
    pair:    the paths of the dense layers, for example ('1', '3'), or of the single one
    biases:  for each dense layer, whether it has a bias
    inner:   the layers between the two
    split:   the number of neurons between the two, or inputs of the single one
    outputs: the number of outputs
    """

    shape: tuple[int, ...]
    before: tuple[Layer, ...]
    pair: tuple[str, ...]
    biases: tuple[bool, ...]
    inner: tuple[Layer, ...]
    split: int
    outputs: int

    def slices(self, neurons: Interval, first: bool) -> dict[str, tuple[slice, ...]]:
        """The slice of each parameter that a worker owns; the `first` worker has the last bias."""
        own, whole = slice(*neurons), slice(None)
        found: dict[str, tuple[slice, ...]] = {}
        if len(self.pair) == 2:
            found[path_of(self.pair[0], "w")] = (whole, own)
            if self.biases[0]:
                found[path_of(self.pair[0], "b")] = (own,)
        found[path_of(self.pair[-1], "w")] = (own, whole)
        if first and self.biases[-1]:
            found[path_of(self.pair[-1], "b")] = (whole,)
        return found


def path_of(layer: str, name: str) -> str:
    """The path of a parameter, given that of its layer, which may have no name."""
    return f"{layer}.{name}" if layer else name


OpenPair = tuple[tuple[int, ...], tuple[Layer, ...], str, Dense]  # shape, before, path, layer


def segments(network: Sequential, workers: int) -> tuple[list[Segment], tuple[Layer, ...]]:
    """A network's dense layers in segments, and the layers after the last segment."""
    found: list[Segment] = []
    waiting: list[Layer] = []
    open_pair: OpenPair | None = None
    shape = start = network.inputs
    dense = sum(isinstance(layer, Dense) for layer in network.layers)
    for name, layer in zip(network.names, network.layers, strict=True):
        if not isinstance(layer, (Dense, *ELEMENTWISE)):
            raise ShapeError(
                f"a split by neurons takes dense layers; {network.name} has {layer.label}: "
                "split its data, or its layers in a pipeline"
            )
        if isinstance(layer, Dense) and len(shape) != 1:
            raise ShapeError(f"a split by neurons takes flat inputs; {network.name} has tokens")
        if not isinstance(layer, Dense):
            waiting.append(layer)
        elif open_pair is None and dense > 1:
            open_pair, waiting = (start, tuple(waiting), name, layer), []
            dense -= 1
        else:
            found.append(_closed(open_pair, start, tuple(waiting), name, shape[0], layer))
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
    open_pair: OpenPair | None, start: tuple[int, ...], waiting: tuple[Layer, ...], path: str,
    inputs: int, layer: Dense,
) -> Segment:  # fmt: skip
    if open_pair is None:
        return Segment(start, waiting, (path,), (layer.bias,), (), inputs, layer.units)
    shape, before, first, other = open_pair
    return Segment(
        shape, before, (first, path), (other.bias, layer.bias), waiting, other.units, layer.units
    )


@dataclass(frozen=True)
class SegmentShard:
    """One worker's shard of a segment, from the whole input to its term of the sum.

    neurons: the range of its neurons
    first:   whether it adds the last bias
    """

    segment: Segment
    neurons: Interval
    first: bool

    def declared(self, parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
        """Its slices of the parameters, by path."""
        return {
            path: replace(
                parameters[path], shape=np.empty(parameters[path].shape, np.bool_)[own].shape
            )
            for path, own in self.segment.slices(self.neurons, self.first).items()
        }

    def apply(self, given: Any, x: Any, context: Context) -> Any:
        """Apply it to a batch."""
        segment = self.segment
        last = segment.pair[-1]
        for layer in segment.before:
            x = layer.apply({}, x, context)
        if len(segment.pair) == 2:
            x = op.dot(x, given[path_of(segment.pair[0], "w")])
            if segment.biases[0]:
                x = op.add_bias(x, given[path_of(segment.pair[0], "b")])
            for layer in segment.inner:
                x = _apply_to_neurons(layer, x, segment.split, self.neurons, context)
        else:
            x = op.part(x, 1, self.neurons)
        y = op.dot(x, given[path_of(last, "w")])
        biased = self.first and segment.biases[-1]
        return op.add_bias(y, given[path_of(last, "b")]) if biased else y

    def traced(
        self,
        own: dict[str, Spec],
        rows: int,
        wants_input_gradient: bool,
        trained: Collection[str] | None = None,
    ) -> TracedPart:
        """Its programs in training, forward and backward; `trained` is as for `trace_part`."""
        segment, dtype = self.segment, next(iter(own.values())).dtype
        seeds = tuple(Spec((), "int64") for _ in range(dropouts([segment], ())[0]))
        return trace_part(
            lambda given, x, *seeds: ((self.apply(given, x, Context(True, iter(seeds))),), {}),
            own, Spec((rows, *segment.shape), dtype), seeds, wants_input_gradient, None, trained,
        )  # fmt: skip

    def forward(self, own: dict[str, Spec], rows: int) -> Program:
        """Its program in testing."""
        x = Spec((rows, *self.segment.shape), next(iter(own.values())).dtype)
        return trace(lambda given, x: self.apply(given, x, Context()), own, x)


def _apply_to_neurons(layer: Layer, x: Any, width: int, neurons: Interval, context: Context) -> Any:
    """Apply a layer to some of the neurons; dropout drops what it would drop of all of them."""
    if not isinstance(layer, Dropout) or not context.training:
        return layer.apply({}, x, context)
    ones = x.recorder.constant(np.ones((x.shape[0], width), x.dtype))
    mask = op.dropout(ones, layer.rate, next(context.seeds))
    return op.hadamard(x, op.part(mask, 1, neurons))


def dropouts(found: Sequence[Segment], after: Sequence[Layer]) -> list[int]:
    """The number of dropout seeds of each segment, and of the layers after the last."""
    each = [(*segment.before, *segment.inner) for segment in found]
    return [sum(isinstance(layer, Dropout) for layer in layers) for layers in (*each, after)]
