"""Lines of max and average pooling."""

from pareo.backends.compiled.loops.groups.emitters.operands import Emitter, operand, result
from pareo.backends.compiled.loops.groups.segments import Node
from pareo.backends.compiled.loops.groups.source import GroupSource
from pareo.backends.compiled.loops.source import Unsupported


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
    g, d = operand(s, node.inputs[0]), node.outputs[0]
    sizes = _sizes(s, node, d, g)
    _, _, high, wide, out_high, out_wide, kh, kw, sh, sw = sizes[:10]
    inside = (out_high - 1) * sh + kh <= high and (out_wide - 1) * sw + kw <= wide
    if any(node.attributes["padding"]) or not inside:
        raise Unsupported("average_pool with windows that extend past the edge")
    s.call("pool.average_gradient", [result(s, node), s.at(g)], *sizes)


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
