"""Images concatenated, sliced, added and flattened."""

import pareo.operators as op
from pareo.backends.cuda.nhwc.lowering import Lowering, next_number
from pareo.backends.cuda.nhwc.rules.activation import channel_sum
from pareo.backends.cuda.nhwc.rules.averages import defer_average
from pareo.backends.cuda.nhwc.rules.normalise import add_normalised
from pareo.backends.cuda.nhwc.rules.normalise_back import defer_sum
from pareo.backends.cuda.nhwc.rules.table import rule
from pareo.backends.cuda.nhwc.rules.tokens import add_biased, is_made, reduced, reshape_rows
from pareo.program.ir import Instruction


def _through_relu_and_bias(lowering: Lowering, g: int) -> bool:
    """Whether a gradient's only reader is a relu gradient, whose sum is a bias' gradient."""
    back = lowering.only_reader(g)
    if back is None or back.name != "relu_gradient" or back.inputs[0] != g:
        return False
    return lowering.is_image(back.inputs[1]) and channel_sum(lowering, back.outputs[0]) is not None


@rule
def concat(lowering: Lowering, join: Instruction) -> bool:
    if join.attributes["axis"] != 1 or not all(map(lowering.is_image, join.inputs)):
        return False
    result = join.outputs[0]
    if len(join.inputs) <= 4 and _through_relu_and_bias(lowering, result):
        lowering.concatenated[result] = join.inputs  # its reader reads the parts
        return True
    operands = tuple(map(lowering.as_working, join.inputs))
    return lowering.add_working("concat_channels", operands, result)


@rule
def part(lowering: Lowering, part: Instruction) -> bool:
    a = part.inputs[0]
    if part.attributes["axis"] != 1 or not lowering.is_image(a):
        return False
    result = part.outputs[0]
    fresh = next_number(lowering.specs)
    lowering.specs[fresh] = lowering.working_spec(result)
    attributes = {"axis": 3, "between": part.attributes["between"]}
    source = lowering.contiguous_working(a)
    lowering.instructions.append(Instruction(op.part, (source,), (fresh,), attributes, 0, 0))
    lowering.working[result] = fresh
    return True


MOST = 4  # images that one instruction adds


def _adds_images(lowering: Lowering, add: Instruction) -> bool:
    """Whether an instruction adds images of the same shape, some in their working form."""
    images = [
        lowering.is_image(n)
        or n in lowering.addends
        or (reduced(lowering) and is_made(lowering, n))
        for n in add.inputs
    ]
    return any(images) and len({lowering.program.specs[n] for n in add.inputs}) == 1


def _total(lowering: Lowering, parts: tuple[int, ...], result: int) -> bool:
    operands = tuple(map(lowering.contiguous_working, parts))
    flops = lowering.program.specs[result].size * (len(parts) - 1)
    return lowering.add_working("add_images", operands, result, flops=flops)


@rule
def add(lowering: Lowering, add: Instruction) -> bool:
    """A sum of up to four images, where intermediate sums have no other reader."""
    if defer_average(lowering, add):
        return True
    if not _adds_images(lowering, add):
        return False
    if add_normalised(lowering, add) or add_biased(lowering, add) or defer_sum(lowering, add):
        return True
    result = add.outputs[0]
    first, second = (lowering.addends.pop(n, (n,)) for n in add.inputs)
    if len(first) + len(second) > MOST:
        _total(lowering, second, add.inputs[1])
        second = add.inputs[1:]
    following = lowering.only_reader(result)
    if following is not None and following.name == "add" and len(first) + len(second) < MOST:
        lowering.addends[result] = first + second
        if _adds_images(lowering, following):
            return True
        del lowering.addends[result]
    return _total(lowering, first + second, result)


@rule
def reshape(lowering: Lowering, reshape: Instruction) -> bool:
    x, result = reshape.inputs[0], reshape.outputs[0]
    before, after = lowering.program.specs[x], lowering.program.specs[result]
    if lowering.is_image(x) and after.shape == (before.shape[0], before.size // before.shape[0]):
        source = lowering.contiguous_working(x)
        if before.shape[2:] == (1, 1):
            lowering.working[result] = lowering.reshape(source, lowering.working_spec(result))
            return True
        return lowering.add_working("channels_first", (source,), result)
    if after.ndim == 4 and before.shape == (after.shape[0], after.size // after.shape[0]):
        source = lowering.as_working(x)
        if after.shape[2:] == (1, 1):
            lowering.working[result] = lowering.reshape(source, lowering.working_spec(result))
            return True
        return lowering.add_working("channels_last", (source,), result)
    return reshape_rows(lowering, reshape)
