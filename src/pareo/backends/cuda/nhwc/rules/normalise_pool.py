"""Max pooling of normalised images after a relu, as in the first layers of ResNets and DenseNets.

One kernel normalises, applies the relu and pools, so that the images in between, the largest of
such a network, are never stored; and likewise in the backward pass. The gradients of scale and
shift are sums over windows: only the largest element of a window has a gradient.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pareo.backends.cuda.nhwc.lowering import Lowering
from pareo.program.ir import Instruction
from pareo.spec import Spec

if TYPE_CHECKING:
    from pareo.backends.cuda.nhwc.rules.normalise import Normalised


@dataclass(frozen=True)
class Pooled:
    """Pooled images: what they normalise, where each maximum comes from, and its index."""

    norm: "Normalised"
    padding: tuple[int, ...]
    largest: int
    indices: int


def only_pooled(lowering: Lowering, y: int, x: int) -> bool:
    """Whether relu(normalised x), y, is read only by a max pooling, and by its backward pass."""
    reading = [lowering.program.instructions[p] for p in lowering.reader_positions[y]]
    pools = [one for one in reading if one.name == "max_pool"]
    backs = [one for one in reading if one.name == "max_pool_gradient"]
    relus = [one for one in reading if one.name == "relu_gradient"]
    if len(pools) != 1 or y in lowering.program.outputs:
        return False
    how = dict(pools[0].attributes)
    if (how["size"], how["stride"]) != ((3, 3), (2, 2)):
        return False
    if not backs and not relus:
        return len(reading) == 1
    if not len(backs) == len(relus) == 1 or len(reading) != 3:
        return False
    back, relu = backs[0], relus[0]
    if dict(back.attributes) != how or back.inputs[1] != y or relu.inputs[1] != y:
        return False
    if lowering.only_reader(back.outputs[0]) is not relu:
        return False
    norm = lowering.only_reader(relu.outputs[0])
    return norm is not None and norm.name == "batch_norm_gradient" and (
        norm.inputs[:2] == (relu.outputs[0], x)
    )  # fmt: skip


def pool_normalised(lowering: Lowering, pool: Instruction) -> bool:
    """Normalise, apply the relu and pool, where the relu was left to this instruction."""
    y, result = pool.inputs[0], pool.outputs[0]
    norm = lowering.to_pool.get(y)
    if norm is None or y not in lowering.deferred:
        return False
    spec = lowering.working_spec(result)
    operands = (lowering.contiguous_working(norm.x), *map(lowering.as_plain, norm.vectors))
    how: dict[str, Any] = {"epsilon": norm.epsilon, "padding": pool.attributes["padding"]}
    made = lowering.add(
        "normalise_pool", operands, spec, spec, Spec(spec.shape, "uint8"),
        flops=pool.flops + 3 * lowering.program.specs[y].size, **how,
    )  # fmt: skip
    lowering.working[result] = made[0]
    lowering.pooled[y] = Pooled(norm, how["padding"], *made[1:])
    return True


def defer_pool_back(lowering: Lowering, back: Instruction) -> bool:
    """Leave the gradients of pooling and relu to that of the normalisation."""
    g, y = back.inputs
    pooled = lowering.pooled.get(y)
    relu = lowering.only_reader(back.outputs[0])
    if pooled is None or relu is None:
        return False
    lowering.mark_done(relu)
    result, how = relu.outputs[0], dict(back.attributes)
    lowering.pooled_errors[result] = g, pooled

    def plain() -> None:
        operands = lowering.contiguous_working(g), pooled.indices
        lowering.add_working("max_pool_back", operands, result, flops=back.flops, **how)

    return lowering.defer(result, plain)


def normalise_pool_back(lowering: Lowering, back: Instruction) -> bool:
    """The gradient of a normalisation whose result is pooled."""
    error, x, scale, mean, variance = back.inputs
    if error not in lowering.pooled_errors or error not in lowering.deferred:
        return False
    g, pooled = lowering.pooled_errors[error]
    norm, epsilon = pooled.norm, back.attributes["epsilon"]
    if (norm.x, norm.vectors[:3], norm.epsilon) != (x, (mean, variance, scale), epsilon):
        return False
    vectors, vector = tuple(map(lowering.as_plain, norm.vectors)), lowering.program.specs[scale]
    arriving = lowering.contiguous_working(g)
    operands = (pooled.largest, *vectors, arriving)
    how: dict[str, Any] = {"activation": "RELU", "limits": (0.0, 0.0), "epsilon": epsilon}
    size = lowering.specs[pooled.largest].size
    sums = lowering.add("normalise_back_sums", operands, vector, vector, flops=5 * size, **how)
    result, *others = back.outputs
    lowering.plain |= dict(zip(others, sums, strict=True))
    source = lowering.contiguous_working(x)
    operands = (source, arriving, pooled.indices, *sums, *vectors)
    more = {"epsilon": epsilon, "padding": pooled.padding, "flops": back.flops}
    return lowering.add_working("normalise_pool_back", operands, result, **more)
