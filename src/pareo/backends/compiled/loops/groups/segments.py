"""A gradient program of one image, cut where images depend on each other.

Batch normalisation needs sums over the whole batch. So a program is cut into segments: within a
segment nothing depends on other images, and all groups of a batch pass through one segment before
any enters the next. Without batch normalisation there is one segment.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import count

from pareo.backends.compiled.loops.source import Unsupported
from pareo.program.ir import Instruction, Program
from pareo.program.kernel import Attribute

# Instructions whose results are known only after all groups have passed.
STATISTICS, SUMS = "batch_norm_statistics", "batch_norm_sums"


@dataclass(frozen=True)
class Node:
    """An instruction, or one of the parts that a batch normalisation is divided into."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: Mapping[str, Attribute]
    segment: int = 0


@dataclass(frozen=True)
class MovingAverage:
    """State that becomes `kept` times itself plus `share` times a statistic of the batch."""

    parameter: int
    statistic: int
    kept: float
    share: float


@dataclass(frozen=True)
class Segments:
    """The nodes of a program, ordered by their segments, and its state."""

    nodes: tuple[Node, ...]
    averages: tuple[MovingAverage, ...] = ()

    @property
    def count(self) -> int:
        return 1 + max(node.segment for node in self.nodes)


def segments(program: Program, state: Collection[int] = ()) -> Segments:
    """The segments of a program, of which the parameters at positions `state` are state.

    The output for a parameter is its gradient, or the new value of state.
    """
    averages, unused = [], set()
    made = {i.outputs[0]: i for i in program.instructions}
    for position in state:
        average, parts = _average(program, made, position)
        averages.append(average)
        unused |= parts
    nodes: list[Node] = []
    fresh = count(-1, -1)
    read = {n for i in program.instructions for n in i.inputs} | set(program.outputs)
    for i in program.instructions:
        if i.outputs[0] not in unused:
            nodes += _parts(i, next(fresh), read)
    return Segments(_ordered(nodes), tuple(averages))


def _average(
    program: Program, made: Mapping[int, Instruction], position: int
) -> tuple[MovingAverage, set[int]]:
    """The rule by which a state moves, and the values that are computed for it alone."""
    parameter, result = program.inputs[position], program.outputs[1 + position]
    total = made.get(result)
    terms = [made.get(n) for n in total.inputs] if total and total.name == "add" else []
    factors = {}
    for term in terms:
        if term is not None and term.name == "scale" and term.inputs[0] in program.constants:
            factors[term.inputs[1]] = float(program.constants[term.inputs[0]])
    others = [n for n in factors if n != parameter]
    if parameter not in factors or len(others) != 1:
        raise Unsupported("state that is no moving average")
    parts = {result, *(term.outputs[0] for term in terms if term is not None)}
    if any(parts & set(i.inputs) for i in program.instructions if i.outputs[0] not in parts):
        raise Unsupported("state that is used")
    return MovingAverage(parameter, others[0], factors[parameter], factors[others[0]]), parts


def _parts(i: Instruction, fresh: int, read: Collection[int]) -> list[Node]:
    """An instruction as nodes: what all groups do, and what needs the sums of all groups."""
    how = i.attributes
    if i.name == "batch_norm":
        (x, scale, shift), (y, mean, variance) = i.inputs, i.outputs
        return [
            Node(STATISTICS, (x,), (mean, variance), how),
            Node("batch_norm", (x, scale, shift, mean), (y,), how),
        ]
    if i.name == "batch_norm_gradient":
        (g, x, scale, mean, _), (gx, by_scale, by_shift) = i.inputs, i.outputs
        found = [Node(SUMS, (g, x, mean), (fresh, by_scale, by_shift), how)]
        if gx in read:
            found.append(Node("batch_norm_gradient", (g, x, scale, mean, fresh), (gx,), how))
        return found
    return [Node(i.name, i.inputs, i.outputs, how)]


def _ordered(nodes: list[Node]) -> tuple[Node, ...]:
    """The nodes by the first segment in which they can run."""
    known: dict[int, int] = {}
    placed = []
    for node in nodes:
        segment = max((known.get(n, 0) for n in node.inputs), default=0)
        placed.append(Node(node.name, node.inputs, node.outputs, node.attributes, segment))
        later = node.name in (STATISTICS, SUMS)
        known |= dict.fromkeys(node.outputs, segment + later)
    return tuple(sorted(placed, key=lambda node: node.segment))
