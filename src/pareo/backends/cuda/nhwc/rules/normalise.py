"""Batch normalisation, with the residual and the activation that follow it.

A normalised value is not computed until something reads it. Mostly that is an activation, or a sum
with a residual and then an activation: one kernel computes them all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pareo.backends.cuda.nhwc.kernels.launch import NORMALISED
from pareo.backends.cuda.nhwc.kernels.normalise import fits, signs
from pareo.backends.cuda.nhwc.lowering import Lowering
from pareo.backends.cuda.nhwc.rules.normalise_pool import only_pooled
from pareo.backends.cuda.nhwc.rules.table import RULES, rule
from pareo.backends.cuda.nhwc.rules.tokens import activate_biased, is_made, reduced
from pareo.program.ir import Instruction

Limits = tuple[float, float]
NO_LIMITS: Limits = (0.0, 0.0)


@dataclass(frozen=True)
class Normalised:
    """A value (x - mean) * scale / sqrt(variance + epsilon) + shift, plus a residual if any."""

    x: int
    vectors: tuple[int, ...]  # mean, variance, scale, shift
    epsilon: float
    residual: int | None = None


@dataclass(frozen=True)
class Activated:
    """The activation of a normalised value; with a residual, the signs that its kernel left."""

    of: int
    kind: str
    limits: Limits
    signs: int | None = None


# The kernels' name of each operator that is an activation, and its attributes for their limits.
KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "relu": ("RELU", ()),
    "clip": ("CLIP", ("low", "high")),
    "silu": ("SILU", ()),
    "hard_swish": ("HARD_SWISH", ()),
    "hard_sigmoid": ("HARD_SIGMOID", ()),
    "leaky_relu": ("LEAKY", ("slope",)),
    "gelu": ("GELU", ()),
}


def kind_of(instruction: Instruction) -> tuple[str, Limits]:
    """The activation that an instruction computes, or whose gradient it computes."""
    kind, names = KINDS[instruction.name.removesuffix("_gradient")]
    if instruction.attributes.get("approximate"):
        kind = "GELU_TANH"
    low, high = (*(float(instruction.attributes[name]) for name in names), 0.0, 0.0)[:2]
    return kind, (low, high)


def can_normalise(lowering: Lowering, x: int, *vectors: int) -> bool:
    """Whether x is images that the kernels can normalise with these vectors."""
    given = all(lowering.program.specs[v].dtype == np.float32 for v in (x, *vectors))
    return given and lowering.is_image(x) and fits(lowering.working_spec(x))


def _normalise(
    lowering: Lowering, norm: Normalised, result: int, kind: str, limits: Limits, flops: int
) -> int | None:
    """Add the activation of a normalised value; returns its signs where there is a residual."""
    operands = [lowering.contiguous_working(norm.x), *map(lowering.as_plain, norm.vectors)]
    epsilons = norm.epsilon, 0.0
    if norm.residual is not None:
        other = _only_deferred(lowering, norm.residual)
        if other is None:
            operands.append(lowering.contiguous_working(norm.residual))
        else:
            operands.append(lowering.contiguous_working(other.x))
            operands += map(lowering.as_plain, other.vectors)
            epsilons = norm.epsilon, other.epsilon
    more: dict[str, Any] = {
        "activation": kind, "limits": limits, "epsilons": epsilons, "flops": flops,
    }  # fmt: skip
    back = kind == "RELU" and lowering.readers_named(result, "relu_gradient")
    if norm.residual is None or not back:
        lowering.add_working("normalise_forward", tuple(operands), result, **more)
        return None
    spec = lowering.working_spec(result)
    made = lowering.add("normalise_with_signs", tuple(operands), spec, signs(spec), **more)
    lowering.working[result] = made[0]
    return made[1]


def _only_deferred(lowering: Lowering, number: int) -> Normalised | None:
    """What a value normalises, if it has no residual and is read by one instruction alone."""
    norm = lowering.normalised.get(number)
    alone = number in lowering.deferred and lowering.only_reader(number) is not None
    return norm if norm is not None and norm.residual is None and alone else None


def _defer(lowering: Lowering, number: int, norm: Normalised, flops: int) -> bool:
    lowering.normalised[number] = norm
    return lowering.defer(
        number, lambda: _normalise(lowering, norm, number, "IDENTITY", NO_LIMITS, flops)
    )


@rule
def batch_norm(lowering: Lowering, norm: Instruction) -> bool:
    x, scale, shift = norm.inputs
    if not can_normalise(lowering, *norm.inputs):
        return False
    y, *statistics = norm.outputs
    spec, source = lowering.program.specs[statistics[0]], lowering.contiguous_working(x)
    size = lowering.program.specs[x].size
    made = lowering.add("channel_statistics", (source,), spec, spec, flops=4 * size)
    lowering.plain |= dict(zip(statistics, made, strict=True))
    vectors = (*statistics, scale, shift)
    value = Normalised(x, vectors, norm.attributes["epsilon"])
    return _defer(lowering, y, value, norm.flops - 4 * size)


@rule
def batch_norm_inference(lowering: Lowering, norm: Instruction) -> bool:
    x, scale, shift, mean, variance = norm.inputs
    if not can_normalise(lowering, *norm.inputs):
        return False
    value = Normalised(x, (mean, variance, scale, shift), norm.attributes["epsilon"])
    return _defer(lowering, norm.outputs[0], value, norm.flops)


def add_normalised(lowering: Lowering, add: Instruction) -> bool:
    """A residual, added by the kernel that normalises; left to the relu that follows, if any."""
    result = add.outputs[0]
    for main, residual in (add.inputs, add.inputs[::-1]):
        norm = _only_deferred(lowering, main)
        if norm is None or main == residual:
            continue
        both = replace(norm, residual=residual)
        following = lowering.only_reader(result)
        if following is not None and following.name == "relu":
            return _defer(lowering, result, both, add.flops)
        _normalise(lowering, both, result, "IDENTITY", NO_LIMITS, add.flops)
        return True
    return False


def _activate(lowering: Lowering, one: Instruction) -> bool:
    """An activation, fused with what it activates where that is a normalised value."""
    x, result = one.inputs[0], one.outputs[0]
    kind, limits = kind_of(one)
    norm = lowering.normalised.get(x)
    plain = norm is not None and (norm.residual is None or kind == "RELU")
    if norm is not None and plain and x in lowering.deferred and kind in NORMALISED:
        if kind == "RELU" and norm.residual is None and only_pooled(lowering, result, norm.x):
            lowering.to_pool[result] = norm
            return lowering.defer(
                result, lambda: _normalise(lowering, norm, result, kind, limits, one.flops)
            )
        left = _normalise(lowering, norm, result, kind, limits, one.flops)
        lowering.activated[result] = Activated(x, kind, limits, left)
        return True
    if activate_biased(lowering, one, kind):
        return True
    if not is_working(lowering, x):
        return False
    low, high = limits
    more = {"activation": kind, "low": low, "high": high, "flops": one.flops}
    operands = (lowering.contiguous_working(x),)
    return lowering.add_working("activation_forward", operands, result, **more)


def is_working(lowering: Lowering, number: int) -> bool:
    """Whether a value has a working form that differs from the plain one."""
    return lowering.is_image(number) or (reduced(lowering) and is_made(lowering, number))


for _name in KINDS:
    RULES[_name] = _activate
