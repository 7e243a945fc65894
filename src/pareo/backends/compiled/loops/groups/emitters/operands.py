"""What the emitters have in common: their type, operands and results."""

from collections.abc import Callable

from pareo.backends.compiled.loops.groups.segments import Node
from pareo.backends.compiled.loops.groups.source import GroupSource
from pareo.backends.compiled.loops.source import Unsupported

Emitter = Callable[[GroupSource, Node, int], None]  # the number is the node's position


def operand(s: GroupSource, number: int) -> int:
    """A value of images; parameters and constants are refused."""
    if s.root(number) not in s.places:
        raise Unsupported("an operand that is no value of images")
    return number


def result(s: GroupSource, node: Node) -> str:
    """The address of a new result."""
    s.allocate(node.outputs[0])
    return s.at(node.outputs[0])


def with_bias(s: GroupSource, node: Node, fallback: str) -> tuple[str, str, bool]:
    """The address of a layer's result and of its bias, and whether it has one.

    A bias is the value with which sums begin; the node that adds it does nothing then.
    """
    after = _bias_after(s, node)
    if after is None:
        return result(s, node), fallback, False
    s.allocate(after.outputs[0])
    s.biased.add(after.outputs[0])
    bias = s.parameter_of(after.inputs[1], "add_bias")
    return s.at(after.outputs[0]), s.at_parameter(bias), True


def _bias_after(s: GroupSource, node: Node) -> Node | None:
    """The node that adds a bias to a result, if nothing else reads the result."""
    number = node.outputs[0]
    found = s.readers(number)
    if number in s.program.outputs or len(found) != 1 or found[0].name != "add_bias":
        return None
    return found[0] if found[0].inputs[0] == number and found[0].inputs[1] in s.weights else None


def add_bias(s: GroupSource, node: Node, position: int) -> None:
    """Nothing, if the layer before has added the bias."""
    if node.outputs[0] not in s.biased:
        raise Unsupported("add_bias to a value that others read")
