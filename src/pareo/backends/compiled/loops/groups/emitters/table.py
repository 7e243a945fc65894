"""The emitters of all operators."""

from pareo.backends.compiled.loops.groups.emitters import (
    convolution,
    dense,
    elementwise,
    loss,
    moves,
    normalisation,
    operands,
    pooling,
)
from pareo.backends.compiled.loops.groups.segments import STATISTICS, SUMS
from pareo.backends.compiled.loops.groups.source import GroupSource
from pareo.backends.compiled.loops.source import Unsupported


def emit(s: GroupSource) -> None:
    """Add the lines of all nodes of the source's program."""
    for node in s.nodes:
        moves.find_view(s, node)
    s.find_uses()
    s.allocate(s.image)
    image = s.view(s.image, s.size(s.image), s.lanes)
    s.add(f"moves.gather({image}, images, chosen, place, last)")
    for position, node in enumerate(s.nodes):
        s.segment, out = node.segment, node.outputs[0]
        if s.root(out) == out and out not in s.weights:
            emitter = EMITTERS.get(node.name)
            if emitter is None:
                raise Unsupported(node.name)
            emitter(s, node, position)
        if s.root(out) in s.places:
            s.collect(out)
        s.release_after(position)
    s.check_complete()


EMITTERS: dict[str, operands.Emitter] = {
    **{
        name: elementwise.elementwise("elementwise_loops")
        for name in ("exp", "sigmoid", "tanh", "relu", "sigmoid_gradient", "tanh_gradient",
                     "relu_gradient")
    },
    **{
        name: elementwise.elementwise("activation_loops")
        for name in ("gelu", "silu", "hard_sigmoid", "hard_swish", "gelu_gradient",
                     "silu_gradient", "hard_sigmoid_gradient", "hard_swish_gradient")
    },
    "leaky_relu": elementwise.elementwise("activation_loops", "slope"),
    "leaky_relu_gradient": elementwise.elementwise("activation_loops", "slope"),
    "clip": elementwise.elementwise("activation_loops", "low", "high"),
    "clip_gradient": elementwise.elementwise("activation_loops", "low", "high"),
    **dict.fromkeys(("add", "sub", "hadamard", "div"), elementwise.combine),
    "scale": elementwise.scale,
    "conv": convolution.forward,
    "conv_input_gradient": convolution.input_gradient,
    "conv_weight_gradient": convolution.weight_gradient,
    "subsample": convolution.subsample,
    "add_bias": operands.add_bias,
    "dot": dense.dot,
    "average_pool": pooling.pool("average"),
    "average_pool_gradient": pooling.average_gradient,
    "max_pool": pooling.pool("maximum"),
    "max_pool_gradient": pooling.maximum_gradient,
    STATISTICS: normalisation.statistics,
    "batch_norm": normalisation.batch_norm,
    SUMS: normalisation.sums,
    "batch_norm_gradient": normalisation.batch_norm_gradient,
    "layer_norm": normalisation.layer_norm,
    "layer_norm_gradient": normalisation.layer_norm_gradient,
    "lrn": normalisation.lrn,
    "lrn_gradient": normalisation.lrn_gradient,
    "sum": moves.total,
    "mean": moves.total,
    "broadcast": moves.broadcast,
    "concat": moves.concat,
    "part": moves.part,
    "part_gradient": moves.part_gradient,
    "cross_entropy": loss.loss,
    "cross_entropy_gradient": loss.loss_gradient,
}  # fmt: skip
