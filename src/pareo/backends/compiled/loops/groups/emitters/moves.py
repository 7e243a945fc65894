"""Lines of sums along axes, and of moves of whole values."""

import math
from collections.abc import Sequence

from pareo.backends.compiled.loops.groups.emitters.operands import operand
from pareo.backends.compiled.loops.groups.segments import Node
from pareo.backends.compiled.loops.groups.source import GroupSource, Weights
from pareo.backends.compiled.loops.source import Unsupported


def find_view(s: GroupSource, node: Node) -> None:
    """Notice values that are others in another shape."""
    source, result = node.inputs[0], node.outputs[0]
    if source in s.weights and node.name in ("reshape", "transpose"):
        found = s.weights[source]
        if node.name == "reshape" and found.is_transposed:
            raise Unsupported("a transpose that is reshaped")
        turned = node.name == "transpose"
        if turned and len(s.shape(source)) != 2:
            raise Unsupported("transpose")
        s.weights[result] = Weights(found.parameter, found.is_transposed != turned)
    elif node.name == "reshape":
        s.alias(result, source)
    elif node.name == "transpose":
        axes = [axis for axis in node.attributes["axes"] if s.shape(source)[axis] > 1]
        if axes != sorted(axes):
            raise Unsupported("transpose")
        s.alias(result, source)
    elif node.name in ("sum", "mean") and s.size(source) == s.size(result):
        s.alias(result, source)


def split(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, int, int]:
    """The sizes before, along and after axes that lie side by side, except for axes of size 1.

    >>> split((1, 6, 5, 4), (2, 3))
    (6, 20, 1)
    """
    axes = [axis for axis in axes if shape[axis] > 1]
    if not axes:
        return math.prod(shape), 1, 1
    low, high = min(axes), max(axes) + 1
    if any(shape[axis] > 1 and axis not in axes for axis in range(low, high)):
        raise Unsupported("axes that are apart")
    return math.prod(shape[:low]), math.prod(shape[low:high]), math.prod(shape[high:])


def total(s: GroupSource, node: Node, position: int) -> None:
    """A sum or mean along axes; that of all images if nothing else reads it."""
    a, out = operand(s, node.inputs[0]), node.outputs[0]
    before, along, after = split(s.shape(a), node.attributes["axis"])
    share = 1 / along if node.name == "mean" else 1.0
    start = s.sum_of(out) if after == 1 and node.name == "sum" else None
    if start is not None:
        sums = s.array(s.at_sum(start), before)
        s.add(f"gradient_sums.add_planes({sums}, {s.view(a, before, along * s.lanes)})")
        return
    s.allocate(out)
    target = s.view(out, before, after * s.lanes)
    source = s.view(a, before, along, after * s.lanes)
    s.add(f"moves.sum_middle({target}, {source}, np.float32({share!r}))")


def broadcast(s: GroupSource, node: Node, position: int) -> None:
    """A value that is repeated along axes."""
    s.allocate(node.outputs[0])
    _repeat(s, s.at(node.outputs[0]), operand(s, node.inputs[0]), s.shape(node.outputs[0]))


def repeated(s: GroupSource, number: int, wanted: Sequence[int]) -> str:
    """A value of images, repeated to a shape, in memory that is kept for this."""
    key = f"v{number} in {tuple(wanted)}"
    size = math.prod(wanted) * s.lanes
    if key not in s.kept:
        s.kept[key] = s.arena.address(s.arena.keep(size))
    _repeat(s, s.kept[key], number, wanted)
    return s.array(s.kept[key], size)


def _repeat(s: GroupSource, target: str, number: int, wanted: Sequence[int]) -> None:
    shape = (1,) * (len(wanted) - len(s.shape(number))) + s.shape(number)
    axes = [axis for axis in range(len(wanted)) if shape[axis] != wanted[axis]]
    before, along, after = split(wanted, axes)
    out = s.array(target, before, along, after * s.lanes)
    s.add(f"moves.repeat({out}, {s.view(number, before, after * s.lanes)})")


def _rows(s: GroupSource, number: int, axis: int) -> str:
    """A value as an array of the axes before an axis, and all others with the images."""
    before = math.prod(s.shape(number)[:axis])
    return s.view(number, before, s.size(number) // before * s.lanes)


def concat(s: GroupSource, node: Node, position: int) -> None:
    """Values side by side along an axis."""
    axis, out = node.attributes["axis"], node.outputs[0]
    s.allocate(out)
    inner = math.prod(s.shape(out)[axis + 1 :]) * s.lanes
    at = 0
    for part_ in node.inputs:
        source = _rows(s, operand(s, part_), axis)
        s.add(f"moves.put({_rows(s, out, axis)}, {s.integers(at)}, {source})")
        at += s.shape(part_)[axis] * inner


def part(s: GroupSource, node: Node, position: int) -> None:
    """A part of a value along an axis."""
    a, out, axis = operand(s, node.inputs[0]), node.outputs[0], node.attributes["axis"]
    s.allocate(out)
    at = node.attributes["between"][0] * math.prod(s.shape(a)[axis + 1 :]) * s.lanes
    s.add(f"moves.get({_rows(s, out, axis)}, {_rows(s, a, axis)}, {s.integers(at)})")


def part_gradient(s: GroupSource, node: Node, position: int) -> None:
    """A part among zeros."""
    g, out, axis = operand(s, node.inputs[0]), node.outputs[0], node.attributes["axis"]
    s.allocate(out)
    at = node.attributes["between"][0] * math.prod(s.shape(out)[axis + 1 :]) * s.lanes
    s.add(f"gradient_sums.clear({s.view(out)})")
    s.add(f"moves.put({_rows(s, out, axis)}, {s.integers(at)}, {_rows(s, g, axis)})")
