"""Emitters: how each instruction of one image's program becomes lines of a loop over groups."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from pareo.backends.compiled.loops.groups import conv
from pareo.backends.compiled.loops.groups.source import GroupSource, Weights
from pareo.backends.compiled.loops.source import Unsupported
from pareo.program.ir import Instruction

Emitter = Callable[[GroupSource, Instruction, int], None]
MOST_NUMBERS = 64  # of a constant, which are written into the source


def emit(s: GroupSource) -> None:
    """Add the lines of all instructions of the source's program."""
    for i in s.program.instructions:
        _find_view(s, i)
    s.find_uses()
    s.allocate(s.image)
    s.image_at = s.places[s.image]
    for position, i in enumerate(s.program.instructions):
        if s.root(i.outputs[0]) == i.outputs[0] and i.outputs[0] not in s.weights:
            emitter = EMITTERS.get(i.name)
            if emitter is None:
                raise Unsupported(i.name)
            emitter(s, i, position)
        if s.root(i.outputs[0]) in s.places:
            s.collect(i.outputs[0])
        s.release_after(position)
    missing = set(s.program.outputs[1:]) - s.collected
    if missing:
        raise Unsupported("a gradient that depends on no image")


def _find_view(s: GroupSource, i: Instruction) -> None:
    """Notice values that are others in another shape."""
    source, result = i.inputs[0], i.outputs[0]
    if source in s.weights and i.name in ("reshape", "transpose"):
        found = s.weights[source]
        if i.name == "reshape" and found.is_transposed:
            raise Unsupported("a transpose that is reshaped")
        turned = i.name == "transpose"
        if turned and len(s.shape(source)) != 2:
            raise Unsupported("transpose")
        s.weights[result] = Weights(found.parameter, found.is_transposed != turned)
    elif i.name == "reshape":
        s.alias(result, source)
    elif i.name == "transpose":
        axes = [axis for axis in i.attributes["axes"] if s.shape(source)[axis] > 1]
        if axes != sorted(axes):
            raise Unsupported("transpose")
        s.alias(result, source)
    elif i.name in ("sum", "mean") and s.size(source) == s.size(result):
        s.alias(result, source)


def _result(s: GroupSource, i: Instruction) -> str:
    """The address of a new result."""
    s.allocate(i.outputs[0])
    return s.at(i.outputs[0])


def _operand(s: GroupSource, number: int) -> int:
    """A value of images; parameters and constants are refused."""
    if s.root(number) not in s.places:
        raise Unsupported("an operand that is no value of images")
    return number


# Elementwise


def _elementwise(module: str, *names: str) -> Emitter:
    """An operator whose loop has its name, and takes some attributes as an array of numbers."""

    def emitter(s: GroupSource, i: Instruction, position: int) -> None:
        name = i.name
        if name.startswith("gelu") and i.attributes["approximate"]:
            name = name.replace("gelu", "gelu_tanh")
        numbers = [i.attributes[attribute] for attribute in names]
        extra = [s.once(f"np.array({numbers}, np.float32)")] if numbers else []
        _loop(s, f"{module}.{name}", i.outputs[0], i.inputs, extra, position)

    return emitter


def _elements(s: GroupSource, operand: int, out: int) -> str:
    """The elements of an operand, as many as a result has; a constant is repeated."""
    constant = s.program.constants.get(operand)
    if constant is not None:
        return _repeated(s, constant, s.shape(out))
    if s.size(_operand(s, operand)) != s.size(out):
        raise Unsupported("an elementwise operator that broadcasts")
    return s.view(operand)


def _repeated(s: GroupSource, constant: Any, shape: Sequence[int]) -> str:
    """A constant with one number for each channel, or one for all, as wide as a value."""
    wide = [
        axis for axis, size in enumerate(constant.shape, len(shape) - constant.ndim) if size > 1
    ]
    first = wide[0] if wide else len(shape)
    if len(wide) > 1 or (math.prod(shape[:first]) > 1 and wide):
        raise Unsupported("an elementwise operator with a constant of many axes")
    numbers = [float(number) for number in constant.reshape(-1)]
    if len(numbers) > MOST_NUMBERS or not all(map(math.isfinite, numbers)):
        raise Unsupported("an elementwise operator with many numbers, or some that are not finite")
    times = math.prod(shape) // len(numbers) * s.lanes
    return s.once(f"np.repeat(np.array({numbers}, np.float32), {times})")


def _loop(
    s: GroupSource, name: str, out: int, operands: Sequence[int], extra: list[str], position: int
) -> None:
    """An elementwise loop, over its first operand if nothing reads that afterwards."""
    views = [_elements(s, operand, out) for operand in operands]
    others = [s.root(operand) for operand in operands[1:]]
    first = operands[0]
    if s.is_free_after(first, position) and s.root(first) not in others:
        s.take_over(out, first)
        s.add(f"{name}_in_place({', '.join([*views, *extra])})")
    else:
        s.allocate(out)
        s.add(f"{name}({', '.join([s.view(out), *views, *extra])})")


def _add(s: GroupSource, i: Instruction, position: int) -> None:
    a, b = i.inputs
    if i.name == "add" and not s.is_free_after(a, position) and s.is_free_after(b, position):
        a, b = b, a
    _loop(s, f"elementwise_loops.{i.name}", i.outputs[0], (a, b), [], position)


def _scale(s: GroupSource, i: Instruction, position: int) -> None:
    alpha, a = i.inputs
    factor = s.program.constants.get(alpha)
    if factor is None:
        raise Unsupported("scale by a value")
    extra = [s.once(f"np.array([{float(factor)!r}], np.float32)")]
    _loop(s, "elementwise_loops.scale", i.outputs[0], (a,), extra, position)


# Convolutions


def _geometry(s: GroupSource, i: Instruction, x: int, y: int, w: tuple[int, ...]) -> list[int]:
    """The sizes that all kernels of convolution take."""
    how = i.attributes
    if how["groups"] != 1:
        raise Unsupported("conv in groups")
    images, channels, high, wide = s.shape(x)
    _, filters, out_high, out_wide = s.shape(y)
    top, left = how["padding"][:2]
    return [
        s.lanes, images, filters, channels, high, wide, out_high, out_wide, *w[2:], *how["stride"],
        top, left, *how["dilation"],
    ]  # fmt: skip


def _packed(s: GroupSource, weights: int, shape: Sequence[int], turned: bool) -> str:
    """The address of a convolution's packed weights, which are packed once for each step."""
    parameter = s.parameter_of(weights, "conv with filters that are no parameter")
    filters, channels, kh, kw = shape
    steps = channels * kh * kw, kh * kw
    if turned:
        filters, channels, steps = channels, filters, steps[::-1]
    key = f"# v{parameter} {shape} {turned}"
    if key not in s.per_step:
        size = conv.packed_size(filters, channels, kh * kw, s.lanes)
        block = conv.block_of(filters, s.lanes)
        offset = s.floats
        s.floats += -(-size // 16) * 16
        given = (
            f"{filters}, {channels}, {kh}, {kw}, {block}, {conv.padded(block)}, {steps[0]}, "
            f"{steps[1]}"
        )
        view = s.array(s.in_arena(offset), size)
        source = s.array(s.at_parameter(parameter), s.size(parameter))
        s.per_step += [key, f"conv.pack({view}, {source}, {given})"]
        s.packed[key] = offset
    return s.in_arena(s.packed[key])


def _bias_after(s: GroupSource, i: Instruction) -> Instruction | None:
    """The instruction that adds a bias to a result, if nothing else reads the result."""
    result = i.outputs[0]
    found = s.readers(result)
    if result in s.program.outputs or len(found) != 1 or found[0].name != "add_bias":
        return None
    return found[0] if found[0].inputs[0] == result and found[0].inputs[1] in s.weights else None


def _with_bias(s: GroupSource, i: Instruction, fallback: str) -> tuple[str, str, bool]:
    """The address of a layer's result and of its bias, and whether it has one.

    A bias is the value with which sums begin; the instruction that adds it does nothing then.
    """
    after = _bias_after(s, i)
    if after is None:
        return _result(s, i), fallback, False
    s.allocate(after.outputs[0])
    s.biased.add(after.outputs[0])
    bias = s.parameter_of(after.inputs[1], "add_bias")
    return s.at(after.outputs[0]), s.at_parameter(bias), True


def _conv(s: GroupSource, i: Instruction, position: int) -> None:
    x, w = i.inputs
    sizes = _geometry(s, i, _operand(s, x), i.outputs[0], s.shape(w))
    weights = _packed(s, w, s.shape(w), False)
    y, bias, biased = _with_bias(s, i, weights)
    s.call("conv.forward", [y, s.at(x), weights, bias], *sizes, int(biased))


def _conv_input_gradient(s: GroupSource, i: Instruction, position: int) -> None:
    (g, w), d = i.inputs, i.outputs[0]
    sizes = _geometry(s, i, d, _operand(s, g), s.shape(w))
    weights = _packed(s, w, s.shape(w), True)
    s.call("conv.input_gradient", [_result(s, i), s.at(g), weights], *sizes)


def _conv_weight_gradient(s: GroupSource, i: Instruction, position: int) -> None:
    (x, g), gw = i.inputs, i.outputs[0]
    total = s.sum_of(gw)
    if total is None:
        raise Unsupported("gradient of filters that is used")
    sizes = _geometry(s, i, _operand(s, x), _operand(s, g), s.shape(gw))
    s.call("conv.weight_gradient", [s.at_sum(total), s.at(x), s.at(g)], *sizes)


def _subsample(s: GroupSource, i: Instruction, position: int) -> None:
    """One filter for all channels, which are images of one channel here."""
    (x, w, b), y = i.inputs, i.outputs[0]
    kh, kw = s.shape(w)
    weights = _packed(s, w, (1, 1, kh, kw), False)
    bias = s.at_parameter(s.parameter_of(b, "subsample"))
    (_, channels, high, wide), (out_high, out_wide) = s.shape(_operand(s, x)), s.shape(y)[2:]
    s.call(
        "conv.forward", [_result(s, i), s.at(x), weights, bias], s.lanes,
        s.shape(x)[0] * channels, 1, 1, high, wide, out_high, out_wide, kh, kw,
        *i.attributes["stride"], 0, 0, 1, 1, 1,
    )  # fmt: skip


def _add_bias(s: GroupSource, i: Instruction, position: int) -> None:
    if i.outputs[0] not in s.biased:
        raise Unsupported("add_bias to a value that others read")


# Dense layers


def _dot(s: GroupSource, i: Instruction, position: int) -> None:
    (a, b), out = i.inputs, i.outputs[0]
    if a in s.weights or len(s.shape(out)) != 2:
        raise Unsupported("dot")
    if b in s.weights:
        inputs, outputs = s.shape(b)
        if s.shape(_operand(s, a))[0] != 1:
            raise Unsupported("dot of several rows")
        if s.weights[b].is_transposed:
            w = s.at_parameter(s.weights[b].parameter)
            s.call("dense.input_gradient", [_result(s, i), s.at(a), w], s.lanes, outputs, inputs)
            return
        w = s.at_parameter(s.weights[b].parameter)
        y, bias, biased = _with_bias(s, i, w)
        s.call("dense.forward", [y, s.at(a), w, bias], s.lanes, inputs, outputs, int(biased))
        return
    total = s.sum_of(out) if s.shape(a)[1] == 1 else None
    if total is None:
        raise Unsupported("dot of values")
    addresses = [s.at_sum(total), s.at(_operand(s, a)), s.at(_operand(s, b))]
    s.call("dense.weight_gradient", addresses, s.lanes, *s.shape(out))


# Pooling


def _pooling(s: GroupSource, i: Instruction, x: int, y: int) -> list[int]:
    images, channels, high, wide = s.shape(x)
    how = i.attributes
    return [
        s.lanes, images * channels, high, wide, *s.shape(y)[2:], *how["size"], *how["stride"],
        *how["padding"][:2],
    ]  # fmt: skip


def _pool(kernel: str) -> Emitter:
    def emitter(s: GroupSource, i: Instruction, position: int) -> None:
        x = _operand(s, i.inputs[0])
        sizes = _pooling(s, i, x, i.outputs[0])
        s.call(f"pool.{kernel}", [_result(s, i), s.at(x)], *sizes)

    return emitter


def _average_pool_gradient(s: GroupSource, i: Instruction, position: int) -> None:
    g, d = _operand(s, i.inputs[0]), i.outputs[0]
    sizes = _pooling(s, i, d, g)
    _, _, high, wide, out_high, out_wide, kh, kw, sh, sw = sizes[:10]
    inside = (out_high - 1) * sh + kh <= high and (out_wide - 1) * sw + kw <= wide
    if any(i.attributes["padding"]) or not inside:
        raise Unsupported("average_pool with windows that extend past the edge")
    s.call("pool.average_gradient", [_result(s, i), s.at(g)], *sizes)


def _max_pool_gradient(s: GroupSource, i: Instruction, position: int) -> None:
    g, x = (_operand(s, n) for n in i.inputs)
    d = i.outputs[0]
    sizes = _pooling(s, i, x, g)
    _, _, high, wide, out_high, out_wide, kh, kw, sh, sw = sizes[:10]
    overlap = sh < kh or sw < kw
    to = _result(s, i)
    if overlap or out_high * kh != high or out_wide * kw != wide or any(i.attributes["padding"]):
        s.add(f"gradient_sums.clear({s.view(d)})")
    s.call("pool.maximum_gradient", [to, s.at(g), s.at(x)], *sizes, int(overlap))


# Sums, and moves of whole values


def _split(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, int, int]:
    """The sizes before, along and after axes that lie side by side, except for axes of size 1."""
    axes = [axis for axis in axes if shape[axis] > 1]
    if not axes:
        return math.prod(shape), 1, 1
    low, high = min(axes), max(axes) + 1
    if any(shape[axis] > 1 and axis not in axes for axis in range(low, high)):
        raise Unsupported("axes that are apart")
    return math.prod(shape[:low]), math.prod(shape[low:high]), math.prod(shape[high:])


def _sum(s: GroupSource, i: Instruction, position: int) -> None:
    a, out = _operand(s, i.inputs[0]), i.outputs[0]
    before, along, after = _split(s.shape(a), i.attributes["axis"])
    share = 1 / along if i.name == "mean" else 1.0
    total = s.sum_of(out) if after == 1 and i.name == "sum" else None
    if total is not None:
        sums = s.array(s.at_sum(total), before)
        s.add(f"gradient_sums.add_planes({sums}, {s.view(a, before, along * s.lanes)})")
        return
    s.allocate(out)
    target = s.view(out, before, after * s.lanes)
    source = s.view(a, before, along, after * s.lanes)
    s.add(f"moves.sum_middle({target}, {source}, np.float32({share!r}))")


def _broadcast(s: GroupSource, i: Instruction, position: int) -> None:
    a, out = _operand(s, i.inputs[0]), i.outputs[0]
    shape, wanted = s.shape(a), s.shape(out)
    shape = (1,) * (len(wanted) - len(shape)) + shape
    axes = [axis for axis in range(len(wanted)) if shape[axis] != wanted[axis]]
    before, along, after = _split(wanted, axes)
    s.allocate(out)
    target = s.view(out, before, along, after * s.lanes)
    s.add(f"moves.repeat({target}, {s.view(a, before, after * s.lanes)})")


def _rows(s: GroupSource, number: int, axis: int) -> str:
    """A value as an array of the axes before an axis, and all others with the images."""
    before = math.prod(s.shape(number)[:axis])
    return s.view(number, before, s.size(number) // before * s.lanes)


def _concat(s: GroupSource, i: Instruction, position: int) -> None:
    axis, out = i.attributes["axis"], i.outputs[0]
    s.allocate(out)
    inner = math.prod(s.shape(out)[axis + 1 :]) * s.lanes
    at = 0
    for part in i.inputs:
        source = _rows(s, _operand(s, part), axis)
        s.add(f"moves.put({_rows(s, out, axis)}, {at}, {source})")
        at += s.shape(part)[axis] * inner


def _part(s: GroupSource, i: Instruction, position: int) -> None:
    a, out, axis = _operand(s, i.inputs[0]), i.outputs[0], i.attributes["axis"]
    s.allocate(out)
    at = i.attributes["between"][0] * math.prod(s.shape(a)[axis + 1 :]) * s.lanes
    s.add(f"moves.get({_rows(s, out, axis)}, {_rows(s, a, axis)}, {at})")


def _part_gradient(s: GroupSource, i: Instruction, position: int) -> None:
    g, out, axis = _operand(s, i.inputs[0]), i.outputs[0], i.attributes["axis"]
    s.allocate(out)
    at = i.attributes["between"][0] * math.prod(s.shape(out)[axis + 1 :]) * s.lanes
    s.add(f"gradient_sums.clear({s.view(out)})")
    s.add(f"moves.put({_rows(s, out, axis)}, {at}, {_rows(s, g, axis)})")


# Loss


def _loss(s: GroupSource, i: Instruction, position: int) -> None:
    """Nothing: the gradient of the loss computes the loss, too."""
    others = [o for o in s.program.instructions if o.name == "cross_entropy_gradient"]
    if [o.inputs[1:] for o in others] != [i.inputs] or i.outputs[0] != s.program.outputs[0]:
        raise Unsupported("a loss with no gradient or several")


def _loss_gradient(s: GroupSource, i: Instruction, position: int) -> None:
    g, logits, labels = i.inputs
    given = s.program.constants.get(g)
    if given is None or float(given) != 1.0 or labels != s.label or len(s.shape(logits)) != 2:
        raise Unsupported("a loss that is not the last value")
    s.classes = s.shape(logits)[1]
    source = s.view(_operand(s, logits), s.classes, s.lanes)
    s.allocate(i.outputs[0])
    target = s.view(i.outputs[0], s.classes, s.lanes)
    s.add(f"moves.to_rows(rows, {source})")
    s.add("total += loss.cross_entropy_rows(errors, rows[:valid], chosen_labels, 1.0, True)")
    s.add(f"moves.from_rows({target}, errors, valid)")


EMITTERS: dict[str, Emitter] = {
    **{
        name: _elementwise("elementwise_loops")
        for name in ("exp", "sigmoid", "tanh", "relu", "sigmoid_gradient", "tanh_gradient",
                     "relu_gradient")
    },
    **{
        name: _elementwise("activation_loops")
        for name in ("gelu", "silu", "hard_sigmoid", "hard_swish", "gelu_gradient",
                     "silu_gradient", "hard_sigmoid_gradient", "hard_swish_gradient")
    },
    "leaky_relu": _elementwise("activation_loops", "slope"),
    "leaky_relu_gradient": _elementwise("activation_loops", "slope"),
    "clip": _elementwise("activation_loops", "low", "high"),
    "clip_gradient": _elementwise("activation_loops", "low", "high"),
    **dict.fromkeys(("add", "sub", "hadamard", "div"), _add),
    "scale": _scale,
    "conv": _conv,
    "conv_input_gradient": _conv_input_gradient,
    "conv_weight_gradient": _conv_weight_gradient,
    "subsample": _subsample,
    "add_bias": _add_bias,
    "dot": _dot,
    "average_pool": _pool("average"),
    "average_pool_gradient": _average_pool_gradient,
    "max_pool": _pool("maximum"),
    "max_pool_gradient": _max_pool_gradient,
    "sum": _sum,
    "mean": _sum,
    "broadcast": _broadcast,
    "concat": _concat,
    "part": _part,
    "part_gradient": _part_gradient,
    "cross_entropy": _loss,
    "cross_entropy_gradient": _loss_gradient,
}  # fmt: skip
