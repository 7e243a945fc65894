"""Lines of dense layers."""

from pareo.backends.compiled.loops.groups.emitters.operands import operand, result, with_bias
from pareo.backends.compiled.loops.groups.segments import Node
from pareo.backends.compiled.loops.groups.source import GroupSource
from pareo.backends.compiled.loops.source import Unsupported


def dot(s: GroupSource, node: Node, position: int) -> None:
    """A dense layer, or the gradient of its values or of its weights."""
    (a, b), out = node.inputs, node.outputs[0]
    if a in s.weights or len(s.shape(out)) != 2:
        raise Unsupported("dot")
    if b in s.weights:
        inputs, outputs = s.shape(b)
        if s.shape(operand(s, a))[0] != 1:
            raise Unsupported("dot of several rows")
        if s.lanes == 1:
            _row(s, node, a, b)
            return
        w = s.at_parameter(s.weights[b].parameter)
        if s.weights[b].is_transposed:
            d = result(s, node)
            s.call("dense.input_gradient", [d, s.at(a), w], s.lanes, outputs, inputs)
            return
        y, bias, biased = with_bias(s, node, w)
        s.call("dense.forward", [y, s.at(a), w, bias], s.lanes, inputs, outputs, int(biased))
        return
    total = s.sum_of(out) if s.shape(a)[1] == 1 else None
    if total is None:
        raise Unsupported("dot of values")
    if s.lanes == 1:
        sums = s.array(s.at_sum(total), *s.shape(out))
        x, g = s.view(operand(s, a)), s.view(operand(s, b))
        s.add(f"row.weight_gradient({sums}, {x}, {g})")
        return
    inputs, outputs = s.shape(out)
    values, errors = operand(s, a), operand(s, b)
    place = s.arena.take(s.lanes * outputs)
    rows = s.arena.address(place)
    s.add(f"moves.to_rows({s.array(rows, s.lanes, outputs)}, {s.view(errors, outputs, s.lanes)})")
    s.call("dense.weight_gradient", [s.at_sum(total), s.at(values), rows], s.lanes, inputs, outputs)
    s.arena.release(place, s.lanes * outputs)


def _row(s: GroupSource, node: Node, a: int, b: int) -> None:
    """A dense layer of a single image, or the gradient of its values."""
    parameter = s.weights[b].parameter
    at = s.at_parameter(parameter)
    if s.weights[b].is_transposed:
        outputs, inputs = s.shape(b)
        d, w = result(s, node), s.array(at, inputs, outputs)
        nothing = s.array(at, 0)
        s.add(f"row.transposed({s.array(d, inputs)}, {s.view(a)}, {w}, {nothing})")
        return
    inputs, outputs = s.shape(b)
    y, bias, biased = with_bias(s, node, at)
    b_view, w = s.array(bias, outputs if biased else 0), s.array(at, inputs, outputs)
    s.add(f"row.forward({s.array(y, outputs)}, {s.view(a)}, {w}, {b_view})")
