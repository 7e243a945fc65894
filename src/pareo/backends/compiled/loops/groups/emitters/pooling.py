"""Lines of max and average pooling."""

import math

from pareo.backends.compiled.loops.groups.emitters.operands import Emitter, operand, result
from pareo.backends.compiled.loops.groups.kernels.window_runs import forward_taps
from pareo.backends.compiled.loops.groups.segments import Node
from pareo.backends.compiled.loops.groups.source import GroupSource


def _sizes(s: GroupSource, node: Node, x: int, y: int) -> list[int]:
    images, channels, high, wide = s.shape(x)
    how = node.attributes
    return [
        s.lanes, images * channels, high, wide, *s.shape(y)[2:], *how["size"], *how["stride"],
        *how["padding"][:2],
    ]  # fmt: skip


def pool(kernel: str) -> Emitter:
    """The forward pass by the kernel of this name."""

    def emitter(s: GroupSource, node: Node, position: int) -> None:
        x = operand(s, node.inputs[0])
        sizes = _sizes(s, node, x, node.outputs[0])
        s.call(f"pool.{kernel}", [result(s, node), s.at(x)], *sizes)

    return emitter


def average_gradient(s: GroupSource, node: Node, position: int) -> None:
    """The gradient of a mean of fewer pixels, at an edge, is made larger first."""
    g, d = operand(s, node.inputs[0]), node.outputs[0]
    sizes = _sizes(s, node, d, g)
    _, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left = sizes
    counts = [
        [len(taps) for taps in forward_taps(*along, 1)]
        for along in ((out_high, high, kh, sh, top), (out_wide, wide, kw, sw, left))
    ]
    to, of = result(s, node), s.at(g)
    if min(counts[0]) < kh or min(counts[1]) < kw:
        shape = planes, out_high * out_wide, s.lanes
        of = s.arena.address(s.arena.keep(math.prod(shape)))
        views = [s.array(address, *shape) for address in (of, s.at(g))]
        numbers = [s.once(f"np.array({numbers})") for numbers in counts]
        s.add(f"moves.divide_windows({', '.join([*views, *numbers])}, {kh * kw})")
    s.call("pool.average_gradient", [to, of], *sizes)


def maximum_gradient(s: GroupSource, node: Node, position: int) -> None:
    g, x = (operand(s, n) for n in node.inputs)
    d = node.outputs[0]
    sizes = _sizes(s, node, x, g)
    _, _, high, wide, out_high, out_wide, kh, kw, sh, sw = sizes[:10]
    overlap = sh < kh or sw < kw
    to = result(s, node)
    if overlap or out_high * kh != high or out_wide * kw != wide or any(node.attributes["padding"]):
        s.add(f"gradient_sums.clear({s.view(d)})")
    s.call("pool.maximum_gradient", [to, s.at(g), s.at(x)], *sizes, int(overlap))
