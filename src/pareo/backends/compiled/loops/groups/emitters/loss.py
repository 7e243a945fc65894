"""Lines of the loss."""

from pareo.backends.compiled.loops.groups.emitters.operands import operand
from pareo.backends.compiled.loops.groups.segments import Node
from pareo.backends.compiled.loops.groups.source import GroupSource
from pareo.backends.compiled.loops.source import Unsupported


def loss(s: GroupSource, node: Node, position: int) -> None:
    """Nothing: the gradient of the loss computes the loss, too."""
    others = [o for o in s.nodes if o.name == "cross_entropy_gradient"]
    if [o.inputs[1:] for o in others] != [node.inputs] or node.outputs[0] != s.program.outputs[0]:
        raise Unsupported("a loss with no gradient or several")


def loss_gradient(s: GroupSource, node: Node, position: int) -> None:
    """The loss and its gradient; 0 for images that only fill up a group."""
    g, logits, labels = node.inputs
    given = s.program.constants.get(g)
    if given is None or float(given) != 1.0 or labels != s.label or len(s.shape(logits)) != 2:
        raise Unsupported("a loss that is not the last value")
    s.classes = s.shape(logits)[1]
    source = s.view(operand(s, logits), s.classes, s.lanes)
    s.allocate(node.outputs[0])
    target = s.view(node.outputs[0], s.classes, s.lanes)
    s.add("for n in range(valid):")
    s.add("    chosen_labels[n] = labels[chosen[place + n]]")
    s.add(f"moves.to_rows(rows, {source})")
    s.add("total += loss.cross_entropy_rows(errors, rows[:valid], chosen_labels, 1.0, True)")
    s.add(f"moves.from_rows({target}, errors, valid)")
