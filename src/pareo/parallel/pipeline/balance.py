"""Where to cut a network into stages, predicted from its program's FLOPs and bytes."""

from collections.abc import Sequence
from itertools import pairwise

from pareo.errors import ShapeError
from pareo.nn.network import Sequential
from pareo.parallel.pipeline.stages import split_into_stages, trace_stage
from pareo.program import Program
from pareo.training.recipe import Recipe
from pareo.training.step import PLAIN

# FLOPs of a core in the time in which memory moves a byte: 3 to 6 on common servers. A measured
# value would differ a little each time, and with it the cut and the bits of the result.
FLOPS_PER_BYTE = 4


def predicted_cost(program: Program) -> float:
    """A program's cost in FLOPs; an instruction bound by memory counts by its bytes instead."""
    return float(sum(max(i.flops, FLOPS_PER_BYTE * i.bytes) for i in program.instructions))


def layer_costs(
    network: Sequential, rows: int, dtype: str = "float32", recipe: Recipe = PLAIN
) -> list[float]:
    """The cost of each layer of a network, forward and backward, for some rows of a batch.

    >>> from pareo.nn import networks
    >>> [round(cost / 1e6, 1) for cost in layer_costs(networks.mlp([100, 200, 10]), 32)]
    [0.0, 4.2, 0.5, 0.5]
    """
    layers = split_into_stages(network, range(len(network.layers) + 1), recipe)
    parts = [
        trace_stage(layer, rows, rows, dtype, recipe, network.classes).program for layer in layers
    ]
    return [predicted_cost(part) for part in parts]


def cuts(costs: Sequence[float], stages: int) -> list[int]:
    """The edges of stages, so that the slowest is as fast as possible.

    >>> cuts([1, 1, 4, 1, 2], 2)
    [0, 3, 5]
    """
    count = len(costs)
    if not 1 <= stages <= count:
        raise ShapeError(f"a network of {count} layers has 1 to {count} stages; got {stages}")
    sums = [0.0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    # best[k]: for the first k layers in so many stages, the slowest stage's cost, and the edges
    best: list[tuple[float, list[int]]] = [(sums[k], [0, k]) for k in range(count + 1)]
    for stage in range(2, stages + 1):
        best = [
            min(
                (
                    (max(best[j][0], sums[k] - sums[j]), [*best[j][1], k])
                    for j in range(stage - 1, k)
                ),
                default=(float("inf"), []),
            )
            for k in range(count + 1)
        ]
    return best[count][1]


def shares(costs: Sequence[float], edges: Sequence[int]) -> list[float]:
    """Each stage's share of the whole cost."""
    whole = sum(costs) or 1.0
    return [sum(costs[a:b]) / whole for a, b in pairwise(edges)]
