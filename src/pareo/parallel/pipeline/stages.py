"""Stages of a network: their layers, their programs, and the order of their work."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.nn.layers import Context
from pareo.nn.network import Auxiliary, Sequential
from pareo.parallel.group.forward_backward import TracedPart, trace_part
from pareo.program.trace import Builder
from pareo.spec import Spec
from pareo.training.step import parameter_specs


@dataclass(frozen=True)
class Stage:
    """Some consecutive layers of a network, and their position in it."""

    network: Sequential
    number: int
    stages: int
    first_layer: int
    first_seed: int

    @property
    def is_last(self) -> bool:
        return self.number == self.stages - 1

    @property
    def has_loss(self) -> bool:
        """Whether part of the loss is computed here: at the end, or by an auxiliary head."""
        inside = self.network.walk(self.network.inputs)
        return self.is_last or any(isinstance(layer, Auxiliary) for _, layer, _ in inside)

    def path(self, own: str) -> str:
        """The path in the whole network of a parameter, given its path in this stage."""
        layer, _, rest = own.partition(".")
        return f"{int(layer) + self.first_layer}.{rest}"


def split_into_stages(network: Sequential, edges: Sequence[int]) -> list[Stage]:
    """The stages of a network; stage k has the layers from edges[k] to edges[k + 1]."""
    found, shape, seeds = [], network.inputs, 0
    for number in range(len(edges) - 1):
        layers = network.layers[edges[number] : edges[number + 1]]
        piece = Sequential(layers, shape, f"{network.name}[{number}]")
        found.append(Stage(piece, number, len(edges) - 1, edges[number], seeds))
        shape, seeds = piece.output(shape), seeds + piece.seeds()
    return found


def trace_stage(stage: Stage, rows: int, batch: int, dtype: str) -> TracedPart:
    """The programs of a stage for a micro-batch of some rows."""
    network = stage.network

    def forward(parameters: Any, x: Any, labels: Any, *seeds: Any) -> tuple[Any, ...]:
        context = Context(True, iter(seeds))
        y = network.apply(parameters, x, context)
        losses = [op.cross_entropy(y, labels)] if stage.is_last else []
        for weight, logits in context.heads:
            losses.append(op.scale(weight, op.cross_entropy(logits, labels)))
        total = losses[:1]
        for loss in losses[1:]:
            total = [op.add(total[0], loss)]
        return tuple(total) if stage.is_last else (y, *total)

    def loss_gradients(builder: Builder, outputs: tuple[Any, ...]) -> dict[Any, Any]:
        share = builder.constant(np.asarray(rows / batch, dtype))
        return {out: share for out in outputs if out.shape == ()}

    others = (Spec((rows,), "int64"), *(Spec((), "int64") for _ in range(network.seeds())))
    x = Spec((rows, *network.inputs), dtype)
    specs = parameter_specs(network, dtype)
    return trace_part(forward, specs, x, others, stage.number > 0, loss_gradients)


def schedule(stage: int, stages: int, micro: int) -> list[tuple[str, int]]:
    """The (pass, micro-batch) pairs of a stage in a step: one forward, one backward (1F1B).

    >>> schedule(0, 2, 2)
    [('forward', 0), ('forward', 1), ('backward', 0), ('backward', 1)]
    >>> schedule(1, 2, 2)
    [('forward', 0), ('backward', 0), ('forward', 1), ('backward', 1)]
    """
    ahead = min(micro, stages - stage)
    passes = [("forward", m) for m in range(ahead)]
    for m in range(micro):
        passes.append(("backward", m))
        if m + ahead < micro:
            passes.append(("forward", m + ahead))
    return passes
