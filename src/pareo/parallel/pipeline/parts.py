"""Stages of a network: which layers, as which programs, in which order a stage does its work."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.nn.layers import Context
from pareo.nn.network import Auxiliary, Sequential
from pareo.parallel.group.shared_programs import specs
from pareo.parallel.pipeline.stage import Traced, traced
from pareo.spec import Spec


@dataclass(frozen=True)
class Part:
    """A stage: some layers of a network, and where they stand in it."""

    network: Sequential
    number: int
    stages: int
    first_layer: int
    first_seed: int

    @property
    def last(self) -> bool:
        return self.number == self.stages - 1

    @property
    def has_loss(self) -> bool:
        """Whether part of the loss is computed here: at the end, or by a head on the way."""
        inside = self.network.walk(self.network.inputs)
        return self.last or any(isinstance(layer, Auxiliary) for _, layer, _ in inside)

    def path(self, own: str) -> str:
        """A parameter's path in the whole network."""
        layer, _, rest = own.partition(".")
        return f"{int(layer) + self.first_layer}.{rest}"


def parts(network: Sequential, edges: Sequence[int]) -> list[Part]:
    """The stages of a network, cut before the layers at `edges`."""
    found, shape, seeds = [], network.inputs, 0
    for number in range(len(edges) - 1):
        layers = network.layers[edges[number] : edges[number + 1]]
        piece = Sequential(layers, shape, f"{network.name}[{number}]")
        found.append(Part(piece, number, len(edges) - 1, edges[number], seeds))
        shape, seeds = piece.output(shape), seeds + piece.seeds()
    return found


def traced_part(part: Part, rows: int, batch: int, dtype: str) -> Traced:
    """The programs of a stage for a micro-batch of some rows."""
    network = part.network

    def through(parameters: Any, x: Any, labels: Any, *seeds: Any) -> tuple[Any, ...]:
        context = Context(True, iter(seeds))
        y = network.apply(parameters, x, context)
        losses = [op.cross_entropy(y, labels)] if part.last else []
        for weight, logits in context.heads:
            losses.append(op.scale(weight, op.cross_entropy(logits, labels)))
        total = losses[:1]
        for loss in losses[1:]:
            total = [op.add(total[0], loss)]
        return tuple(total) if part.last else (y, *total)

    def own(builder: Any, outputs: tuple[Any, ...]) -> dict[Any, Any]:
        share = builder.constant(np.asarray(rows / batch, dtype))
        return {out: share for out in outputs if out.shape == ()}

    others = (Spec((rows,), "int64"), *(Spec((), "int64") for _ in range(network.seeds())))
    x = Spec((rows, *network.inputs), dtype)
    return traced(through, specs(network, dtype), x, others, part.number > 0, own)


def schedule(stage: int, stages: int, micro: int) -> list[tuple[str, int]]:
    """What a stage does in a step: (forward or back, micro-batch), in order.

    >>> schedule(0, 2, 3)
    [('forward', 0), ('forward', 1), ('back', 0), ('forward', 2), ('back', 1), ('back', 2)]
    """
    ahead = min(micro, stages - stage)
    done = [("forward", m) for m in range(ahead)]
    for m in range(micro):
        done.append(("back", m))
        if m + ahead < micro:
            done.append(("forward", m + ahead))
    return done
