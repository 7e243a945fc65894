"""Stages of a network: their layers, their programs, and the order of their work."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.nn.layers import Context
from pareo.nn.network import Auxiliary, Sequential
from pareo.parallel.group.forward_backward import TracedPart, trace_part
from pareo.parallel.group.shared_programs import part_of_loss, whole_specs
from pareo.program.trace import Builder
from pareo.spec import Spec
from pareo.training.recipe import Recipe
from pareo.training.step import PLAIN, parameter_specs


@dataclass(frozen=True)
class Stage:
    """Some consecutive layers of a network, its number of how many, and which seeds are its own."""

    network: Sequential
    number: int
    stages: int
    seeds: tuple[int, ...]

    @property
    def is_last(self) -> bool:
        return self.number == self.stages - 1

    @property
    def has_loss(self) -> bool:
        """Whether part of the loss is computed here: at the end, or by an auxiliary head."""
        inside = self.network.walk(self.network.inputs)
        return self.is_last or any(isinstance(layer, Auxiliary) for _, layer, _ in inside)


def split_into_stages(
    network: Sequential, edges: Sequence[int], recipe: Recipe = PLAIN
) -> list[Stage]:
    """The stages of a network; stage k has the layers from edges[k] to edges[k + 1].

    The layers keep their names, so the paths of parameters are those of the whole network.
    """
    found, shape, first = [], network.inputs, 0
    named = list(zip(network.names, network.layers, strict=True))
    for number, (start, end) in enumerate(pairwise(edges)):
        piece = Sequential(named[start:end], shape, f"{network.name}[{number}]")
        seeds = [*range(first, first + piece.seeds())]
        if number == 0:  # where images are augmented, with the last of all seeds
            seeds += range(network.seeds(), network.seeds() + recipe.seeds)
        found.append(Stage(piece, number, len(edges) - 1, tuple(seeds)))
        shape, first = piece.output(shape), first + piece.seeds()
    return found


def trace_stage(
    stage: Stage, rows: int, batch: int, dtype: str, recipe: Recipe = PLAIN, outputs: int = 1
) -> TracedPart:
    """The programs of a stage for a micro-batch of some rows.

    They read parameters, the input, labels, the weight of the batch if the loss is weighted, and
    seeds. `outputs` is the number of outputs of the whole network.
    """
    network = stage.network
    declared = network.parameters(network.inputs)
    fixed, whole = recipe.fixed(declared), whole_specs(recipe, dtype)

    def forward(parameters: Any, x: Any, labels: Any, *rest: Any) -> Any:
        seeds = list(rest[len(whole) :])
        if stage.number == 0 and recipe.augment is not None:
            x = recipe.augment(x, seeds.pop())
        context = Context(True, iter(seeds), fixed=frozenset(id(parameters[p]) for p in fixed))
        y = network.apply(parameters, x, context)
        part = partial(part_of_loss, recipe, batch, rest[: len(whole)])
        losses = [part(y, labels)] if stage.is_last else []
        for weight, logits in context.heads:
            losses.append(op.scale(weight, part(logits, labels)))
        total = losses[:1]
        for loss in losses[1:]:
            total = [op.add(total[0], loss)]
        paths = {id(array): path for path, array in parameters.items()}
        state = {paths[id(old)]: new for old, new in context.replaced}
        return tuple(total) if stage.is_last else (y, *total), state

    def loss_gradients(builder: Builder, found: tuple[Any, ...]) -> dict[Any, Any]:
        one = builder.constant(np.ones((), dtype))
        return {out: one for out in found if out.shape == ()}

    others = (
        recipe.loss.targets(rows, outputs, dtype),
        *whole,
        *(Spec((), "int64") for _ in stage.seeds),
    )
    x = Spec((rows, *network.inputs), dtype)
    return trace_part(
        forward, parameter_specs(network, dtype), x, others, stage.number > 0, loss_gradients,
        recipe.trained(declared),
    )  # fmt: skip


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
