"""Tokens: layer normalisation, biases of rows with what follows them, images as tokens."""

from dataclasses import dataclass

import numpy as np

import pareo.operators as op
from pareo.backends.cuda.nhwc.kernels.bias import partial_sums
from pareo.backends.cuda.nhwc.kernels.launch import BIASED
from pareo.backends.cuda.nhwc.kernels.tokens import fits
from pareo.backends.cuda.nhwc.lowering import Lowering, next_number
from pareo.backends.cuda.nhwc.rules.table import rule
from pareo.program.ir import Instruction
from pareo.spec import Spec


@dataclass(frozen=True)
class Biased:
    """A deferred value: rows plus a bias."""

    rows: int
    bias: int


def reduced(lowering: Lowering) -> bool:
    """Whether the working precision is not float32."""
    return lowering.dtype != np.float32


def _by_features(lowering: Lowering, x: int, axis: int) -> bool:
    """Whether an axis of x is its last one in the working form, and fits the kernels."""
    spec = lowering.program.specs[x]
    if spec.dtype != np.float32 or not fits(lowering.working_spec(x)):
        return False
    if spec.ndim == 4:
        return axis == 1 and lowering.is_image(x)
    return axis == spec.ndim - 1


@rule
def layer_norm(lowering: Lowering, norm: Instruction) -> bool:
    x, scale, shift = norm.inputs
    if not _by_features(lowering, x, norm.attributes["axis"]):
        return False
    operands = lowering.contiguous_working(x), lowering.as_plain(scale), lowering.as_plain(shift)
    more = {"epsilon": norm.attributes["epsilon"], "flops": norm.flops}
    return lowering.add_working("layer_norm_forward", operands, norm.outputs[0], **more)


@rule
def layer_norm_gradient(lowering: Lowering, back: Instruction) -> bool:
    g, x, scale = back.inputs
    if not _by_features(lowering, x, back.attributes["axis"]):
        return False
    result, to_scale, to_shift = back.outputs
    operands = [lowering.contiguous_working(n) for n in (g, x)] + [lowering.as_plain(scale)]
    flops, add = back.flops, lowering.only_reader(result)
    if add is not None and add.name == "add":
        (other,) = [n for n in add.inputs if n != result] or [result]
        alike = lowering.program.specs[other] == lowering.program.specs[result]
        if other != result and alike and is_made(lowering, other):
            operands.append(lowering.contiguous_working(other))
            lowering.mark_done(add)
            result, flops = add.outputs[0], flops + add.flops
    features = lowering.program.specs[to_scale].size
    specs = lowering.working_spec(result), Spec((2 * features,))
    more = {"epsilon": back.attributes["epsilon"], "flops": flops}
    made = lowering.add("layer_norm_back", tuple(operands), *specs, **more)
    lowering.working[result] = made[0]
    for place, number in enumerate((to_scale, to_shift)):
        fresh = next_number(lowering.specs)
        lowering.specs[fresh] = lowering.program.specs[number]
        between = place * features, (place + 1) * features
        attributes = {"axis": 0, "between": between}
        lowering.instructions.append(Instruction(op.part, made[1:], (fresh,), attributes, 0, 0))
        lowering.plain[number] = fresh
    return True


def is_made(lowering: Lowering, number: int) -> bool:
    """Whether a value has a working form already."""
    return number in lowering.working or number in lowering.deferred


def defer_bias(lowering: Lowering, add: Instruction) -> bool:
    """Leave the bias of rows to the kernel that reads the sum."""
    x, b = add.inputs
    result = add.outputs[0]
    if not fits_rows(lowering, x):
        return False
    lowering.biased[result] = Biased(x, b)

    def bias() -> None:
        operands = lowering.working[x], lowering.as_plain(b)
        more = {"activation": "IDENTITY", "flops": add.flops}
        lowering.add_working("bias_activation_forward", operands, result, **more)

    return lowering.defer(result, bias)


def fits_rows(lowering: Lowering, x: int) -> bool:
    """Whether rows consist of whole pieces of 16 bytes."""
    spec = lowering.working_spec(x)
    return spec.size > 0 and spec.shape[-1] * spec.dtype.itemsize % 16 == 0


def add_biased(lowering: Lowering, add: Instruction) -> bool:
    """A residual, added by the kernel that adds the bias."""
    result = add.outputs[0]
    for main, residual in (add.inputs, add.inputs[::-1]):
        biased = lowering.biased.get(main)
        alone = main in lowering.deferred and lowering.only_reader(main) is not None
        if biased is None or not alone or main == residual:
            continue
        rows = lowering.working[biased.rows]
        operands = (rows, lowering.as_plain(biased.bias), lowering.contiguous_working(residual))
        more = {"activation": "IDENTITY", "flops": 2 * add.flops}
        return _add_rows(lowering, operands, result, more)
    return False


def _add_rows(
    lowering: Lowering, operands: tuple[int, ...], result: int, more: dict[str, object]
) -> bool:
    """Add an instruction on rows; its result has these elements in another shape."""
    spec, wanted = lowering.specs[operands[0]], lowering.working_spec(result)
    (made,) = lowering.add("bias_activation_forward", operands, spec, **more)  # type: ignore[arg-type]
    lowering.working[result] = made if spec == wanted else lowering.reshape(made, wanted)
    return True


def activate_biased(lowering: Lowering, one: Instruction, kind: str) -> bool:
    """An activation of a biased value: one kernel adds the bias and activates."""
    x, result = one.inputs[0], one.outputs[0]
    biased = lowering.biased.get(x)
    if biased is None or x not in lowering.deferred or kind not in BIASED:
        return False
    operands = lowering.working[biased.rows], lowering.as_plain(biased.bias)
    return _add_rows(lowering, operands, result, {"activation": kind, "flops": 2 * one.flops})


def activate_biased_back(lowering: Lowering, back: Instruction, kind: str) -> bool:
    """The gradient of such an activation, with partial sums for the gradient of the bias."""
    g, z = back.inputs
    biased, result = lowering.biased.get(z), back.outputs[0]
    if biased is None or z not in lowering.deferred or kind not in BIASED:
        return False
    rows = lowering.working[biased.rows]
    spec, wanted = lowering.specs[rows], lowering.working_spec(result)
    error = lowering.contiguous_working(g)
    operands = error, rows, lowering.as_plain(biased.bias)
    more = {"activation": kind, "flops": back.flops}
    made = lowering.add("bias_activation_back", operands, spec, partial_sums(spec), **more)  # type: ignore[arg-type]
    lowering.working[result] = made[0] if spec == wanted else lowering.reshape(made[0], wanted)
    lowering.partials[result] = made[1]
    return True


def reshape_rows(lowering: Lowering, reshape: Instruction) -> bool:
    """Another shape of rows or tokens costs nothing; images as tokens keep their layout."""
    x, result = reshape.inputs[0], reshape.outputs[0]
    before, after = lowering.program.specs[x], lowering.program.specs[result]
    if before.ndim == 4 and after.ndim == 3:
        return _as_tokens(lowering, reshape)
    if not reduced(lowering) or 4 in (before.ndim, after.ndim) or not is_made(lowering, x):
        return False
    wanted = lowering.working_spec(result)

    def reshaped() -> None:
        lowering.working[result] = lowering.reshape(lowering.contiguous_working(x), wanted)

    if x in lowering.biased and x in lowering.deferred:
        if before.shape[-1] == after.shape[-1]:
            lowering.biased[result] = lowering.biased[x]
        return lowering.defer(result, reshaped)
    if x in lowering.partials and before.shape[-1] == after.shape[-1]:
        lowering.partials[result] = lowering.partials[x]
    reshaped()
    return True


def _as_tokens(lowering: Lowering, reshape: Instruction) -> bool:
    """Images (N, C, H, W) as (N, C, H * W), then (N, H * W, C): channels last, it is a reshape."""
    x, between = reshape.inputs[0], reshape.outputs[0]
    transpose = lowering.only_reader(between)
    count, channels, height, width = lowering.program.specs[x].shape
    if lowering.program.specs[between].shape != (count, channels, height * width):
        return False
    if transpose is None or transpose.name != "transpose" or not lowering.is_image(x):
        return False
    if transpose.attributes["axes"] != (0, 2, 1):
        return False
    lowering.mark_done(transpose)
    result, source = transpose.outputs[0], lowering.contiguous_working(x)
    lowering.working[result] = lowering.reshape(source, lowering.working_spec(result))
    return True


def as_images(lowering: Lowering, transpose: Instruction) -> bool:
    """The reverse, for their gradients."""
    x, between = transpose.inputs[0], transpose.outputs[0]
    reshape = lowering.only_reader(between)
    if transpose.attributes["axes"] != (0, 2, 1) or reshape is None or reshape.name != "reshape":
        return False
    result = reshape.outputs[0]
    after, before = lowering.program.specs[result], lowering.program.specs[x]
    if after.ndim != 4 or before.shape != (after.shape[0], after.size // (
        after.shape[0] * after.shape[1]
    ), after.shape[1]):  # fmt: skip
        return False
    lowering.mark_done(reshape)
    source = lowering.contiguous_working(x)
    lowering.working[result] = lowering.reshape(source, lowering.working_spec(result))
    return True
