"""The backward pass of batch normalisation, with the activation and the residual that follow it.

The gradient before the activation is left to the kernels of the normalisation's gradient, and so is
a sum of two gradients that arrive.
"""

from dataclasses import dataclass
from typing import Any

from pareo.backends.cuda.nhwc.lowering import Lowering
from pareo.backends.cuda.nhwc.rules.normalise import (
    KINDS,
    NO_LIMITS,
    Activated,
    can_normalise,
    is_working,
    kind_of,
)
from pareo.backends.cuda.nhwc.rules.normalise_pool import normalise_pool_back
from pareo.backends.cuda.nhwc.rules.table import RULES, Rule, rule
from pareo.backends.cuda.nhwc.rules.tokens import activate_biased_back
from pareo.program.ir import Instruction
from pareo.spec import Spec


@dataclass(frozen=True)
class Masked:
    """The gradient before an activation: the gradient g after it, and the activation."""

    g: int
    of: Activated


def defer_sum(lowering: Lowering, add: Instruction) -> bool:
    """Leave a sum of two gradients to the kernel that reads it, that of a normalisation."""
    result, (a, b) = add.outputs[0], add.inputs
    if a == b or not (lowering.is_image(a) and lowering.is_image(b)):
        return False
    if any(number in lowering.addends for number in (a, b)) or not _leaves_sum(lowering, result):
        return False
    lowering.pairs[result] = a, b

    def total() -> None:
        operands = lowering.contiguous_working(a), lowering.contiguous_working(b)
        lowering.add_working("add_images", operands, result, flops=add.flops)

    return lowering.defer(result, total)


def _leaves_sum(lowering: Lowering, result: int) -> bool:
    """Whether the kernel of a normalisation's gradient reads this sum, and can add as well."""
    reader = lowering.only_reader(result)
    direct = any(
        back.inputs[0] == result and _can_go_back(lowering, back)
        for back in lowering.readers_named(result, "batch_norm_gradient")
    )
    masked = reader is not None and reader.name == "relu_gradient" and (
        reader.inputs[0] == result and reader.inputs[1] in lowering.activated
        and _defers(lowering, reader, lowering.activated[reader.inputs[1]])
    )  # fmt: skip
    return direct or masked


def _can_go_back(lowering: Lowering, back: Instruction) -> bool:
    _, x, *vectors = back.inputs
    alike = lowering.working_spec(x) == lowering.working_spec(back.outputs[0])
    return alike and can_normalise(lowering, x, *vectors)


def _defers(lowering: Lowering, back: Instruction, of: Activated) -> bool:
    """Whether a normalisation's gradient can compute the gradient before an activation as well."""
    norms = lowering.readers_named(back.outputs[0], "batch_norm_gradient")
    x = lowering.normalised[of.of].x
    return any(
        norm.inputs[0] == back.outputs[0]
        and _can_go_back(lowering, norm)
        and (of.signs is not None or norm.inputs[1] == x)
        for norm in norms
    )


def defer_activation_back(lowering: Lowering, back: Instruction, y: int, plain: Rule) -> bool:
    """Leave the gradient of an activation, whose result is y, to that of the normalisation."""
    of = lowering.activated.get(y)
    if of is None or not _defers(lowering, back, of):
        return False
    if of.signs is None and lowering.normalised[of.of].residual is not None:
        return False
    result = back.outputs[0]
    lowering.masked[result] = Masked(back.inputs[0], of)
    return lowering.defer(result, lambda: plain(lowering, back))


def _activate_back(lowering: Lowering, back: Instruction) -> bool:
    """The gradient of an activation of z, which reads z."""
    _, z = back.inputs
    kind, limits = kind_of(back)
    for y, of in lowering.activated.items():
        if of.of == z and (of.kind, of.limits) == (kind, limits):
            return defer_activation_back(lowering, back, y, _plain_back) or _plain_back(
                lowering, back
            )
    return _plain_back(lowering, back)


def _plain_back(lowering: Lowering, back: Instruction) -> bool:
    g, z = back.inputs
    if activate_biased_back(lowering, back, kind_of(back)[0]):
        return True
    if not (is_working(lowering, z) or is_working(lowering, g)):
        return False
    (low, high), kind = kind_of(back)[1], kind_of(back)[0]
    more = {"activation": kind, "low": low, "high": high, "flops": back.flops}
    operands = lowering.contiguous_working(g), lowering.contiguous_working(z)
    return lowering.add_working("activation_back", operands, back.outputs[0], **more)


for _name in KINDS:
    if _name != "relu":
        RULES[f"{_name}_gradient"] = _activate_back


@rule
def batch_norm_gradient(lowering: Lowering, back: Instruction) -> bool:
    g, x, scale, mean, variance = back.inputs
    if not _can_go_back(lowering, back):
        return False
    if normalise_pool_back(lowering, back):
        return True
    epsilon = back.attributes["epsilon"]
    masked = lowering.masked.get(g) if g in lowering.deferred else None
    norm = lowering.normalised[masked.of.of] if masked else None
    same = norm and (norm.x, norm.vectors[:3], norm.epsilon) == (
        x,
        (mean, variance, scale),
        epsilon,
    )
    if masked and masked.of.signs is None and not same:
        masked = None
    shift = norm.vectors[3] if norm and masked else scale  # any vector: z is not needed
    vectors = tuple(map(lowering.as_plain, (mean, variance, scale, shift)))
    source = lowering.contiguous_working(x)
    spec, size = lowering.working_spec(x), lowering.program.specs[x].size
    given, kind, limits = (masked.g, masked.of.kind, masked.of.limits) if masked else (
        g, "IDENTITY", NO_LIMITS
    )  # fmt: skip
    pair = lowering.pairs.get(given) if given in lowering.deferred else None
    if pair is not None and masked and lowering.only_reader(given) is None:
        pair = None
    left = masked.of.signs if masked else None
    gradients = tuple(map(lowering.contiguous_working, pair or (given,)))
    alone = lowering.only_reader(g) is not None
    keeps = pair is not None or left is not None or bool(masked and not alone)
    vector = lowering.program.specs[scale]
    specs: list[Spec] = [vector, vector, *([spec] if keeps else [])]
    more: dict[str, Any] = {"epsilon": epsilon, "flops": 5 * size}
    if left is not None:
        operands = (source, *vectors, left, *gradients)
        made = lowering.add("normalise_back_sums_by_signs", operands, *specs, **more)
    else:
        operands = (source, *vectors, *gradients)
        more |= {"activation": kind, "limits": limits}
        made = lowering.add("normalise_back_sums", operands, *specs, **more)
    (error,) = gradients[:1]
    if keeps:
        error, kind, limits = made[2], "IDENTITY", NO_LIMITS
        del lowering.deferred[g]
        lowering.working[g] = error
    result, *others = back.outputs
    lowering.plain |= dict(zip(others, made[:2], strict=True))
    more = {
        "epsilon": epsilon,
        "activation": kind,
        "limits": limits,
        "flops": back.flops - 5 * size,
    }
    operands = (source, error, *made[:2], *vectors)
    add = lowering.only_reader(result)
    other = _addend(lowering, add, result) if add is not None and add.name == "add" else None
    if add is None or other is None:
        return lowering.add_working("normalise_back", operands, result, **more)
    lowering.mark_done(add)
    more["flops"] += add.flops
    return lowering.add_working("normalise_back_plus", (*operands, other), add.outputs[0], **more)


def _addend(lowering: Lowering, add: Instruction, gradient: int) -> int | None:
    """What an instruction adds to the gradient of a normalisation, if its kernel can add it.

    Not where the sum is left to the kernel of another normalisation, which is as fast.
    """
    others = [number for number in add.inputs if number != gradient]
    if len(others) != 1 or not lowering.is_image(others[0]):
        return None
    other, result = others[0], add.outputs[0]
    if lowering.program.specs[other] != lowering.program.specs[gradient]:
        return None
    if other in lowering.deferred or _leaves_sum(lowering, result):
        return None
    found = lowering.as_working(other)
    made = next((i for i in reversed(lowering.instructions) if found in i.outputs), None)
    if made is None or made.name != "part":
        return found
    width = 16 // lowering.dtype.itemsize
    whole = lowering.specs[made.inputs[0]].shape[-1]
    aligned = made.attributes["between"][0] % width == whole % width == 0
    return found if aligned else lowering.contiguous_working(other)
