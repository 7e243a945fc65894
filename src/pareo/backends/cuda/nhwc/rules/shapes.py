"""Images joined, cut, added up and flattened."""

import pareo.operators as op
from pareo.backends.cuda.nhwc.lowering import Lowering, next_number
from pareo.backends.cuda.nhwc.rules.activation import channel_sum
from pareo.backends.cuda.nhwc.rules.table import rule
from pareo.program.ir import Instruction


def _through_relu_and_bias(lowering: Lowering, g: int) -> bool:
    """Whether a gradient goes nowhere but back through a relu, and from there to a bias."""
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
        lowering.beside[result] = join.inputs  # they are read side by side
        return True
    operands = tuple(map(lowering.as_working, join.inputs))
    return lowering.fresh("joined", operands, result)


@rule
def part(lowering: Lowering, part: Instruction) -> bool:
    a = part.inputs[0]
    if part.attributes["axis"] != 1 or not lowering.is_image(a):
        return False
    result = part.outputs[0]
    fresh = next_number(lowering.specs)
    lowering.specs[fresh] = lowering.spec(result)
    attributes = {"axis": 3, "between": part.attributes["between"]}
    source = lowering.whole(a)
    lowering.instructions.append(Instruction(op.part, (source,), (fresh,), attributes, 0, 0))
    lowering.working[result] = fresh
    return True


MOST = 4  # images that are added up at once


def _adds_images(lowering: Lowering, add: Instruction) -> bool:
    """Whether an instruction adds images of one shape, some of them in their working form."""
    images = [lowering.is_image(n) or n in lowering.addends for n in add.inputs]
    return any(images) and len({lowering.old.specs[n] for n in add.inputs}) == 1


def _total(lowering: Lowering, parts: tuple[int, ...], result: int) -> bool:
    operands = tuple(map(lowering.whole, parts))
    flops = lowering.old.specs[result].size * (len(parts) - 1)
    return lowering.fresh("total", operands, result, flops=flops)


@rule
def add(lowering: Lowering, add: Instruction) -> bool:
    """A sum of images: of up to four, where the sums on the way there are read by nobody else."""
    if not _adds_images(lowering, add):
        return False
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
    before, after = lowering.old.specs[x], lowering.old.specs[result]
    if lowering.is_image(x) and after.shape == (before.shape[0], before.size // before.shape[0]):
        source = lowering.whole(x)
        if before.shape[2:] == (1, 1):
            lowering.working[result] = lowering.reshaped(source, lowering.spec(result))
            return True
        return lowering.fresh("channels_first", (source,), result)
    if after.ndim == 4 and before.shape == (after.shape[0], after.size // after.shape[0]):
        source = lowering.as_working(x)
        if after.shape[2:] == (1, 1):
            lowering.working[result] = lowering.reshaped(source, lowering.spec(result))
            return True
        return lowering.fresh("channels_last", (source,), result)
    return False
