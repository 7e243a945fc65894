"""Self-attention of tokens that hold queries, keys and values side by side.

The program splits and transposes the tokens first, and transposes the result back. cuDNN reads and
writes all of them in place, so that the whole is one instruction forward and one backward.
"""

from dataclasses import dataclass

from pareo.backends.cuda.nhwc.attention import Attention
from pareo.backends.cuda.nhwc.lowering import Lowering
from pareo.backends.cuda.nhwc.rules.table import rule
from pareo.backends.cuda.nhwc.rules.tokens import reduced
from pareo.program.ir import Instruction
from pareo.spec import Spec


@dataclass
class Match:
    """An attention that was found in the program."""

    of: Attention
    x: int  # the tokens
    result: int  # the attention's result as tokens
    around: list[Instruction]  # what splits and transposes
    back: Instruction | None = None
    g: int = -1  # the gradient of the result
    to_x: int = -1  # the gradient of the tokens
    kept: tuple[int, ...] = ()  # the result and its sums, once they are added


def find_attention(lowering: Lowering) -> None:
    """Find every attention that cuDNN can compute, and mark what is around it as done."""
    if not reduced(lowering):
        return
    for one in lowering.program.instructions:
        if one.name != "attention_with_sums":
            continue
        match = _match(lowering, one)
        if match is None or not lowering.attends(match.of):
            continue
        lowering.attentions[one.outputs[0]] = match
        if match.back is not None:
            lowering.attentions[match.back.outputs[0]] = match
        lowering.mark_done(*match.around)


def _match(lowering: Lowering, one: Instruction) -> Match | None:
    q, k, v, mask = one.inputs
    constant = lowering.program.constants.get(mask)
    if constant is None or constant.ndim or float(constant) != 0:
        return None
    sources = [_source(lowering, number, place) for place, number in enumerate((q, k, v))]
    first = sources[0]
    if first is None or any(s is None or s[0] != first[0] for s in sources):
        return None
    batch, heads, count, size = lowering.program.specs[q].shape
    around = [i for s in sources if s for i in s[1]]
    after = _through(lowering, one.outputs[0], ((0, 2, 1, 3), (batch, count, heads * size)))
    if after is None:
        return None
    causal = bool(one.attributes["causal"])
    of = Attention(batch, count, heads, size, causal)
    match = Match(of, first[0], after[-1].outputs[0], [*around, *after])
    backs = _readers(lowering, *one.inputs[:3], *one.outputs, names=("attention_gradient",))
    if len(backs) > 1 or any(back.attributes["causal"] != causal for back in backs):
        return None
    if backs and not _match_back(lowering, match, one, backs[0]):
        return None
    return match if _is_private(lowering, one, match) else None


def _is_private(lowering: Lowering, one: Instruction, match: Match) -> bool:
    """Whether nothing else reads what the match leaves out."""
    inside = [*match.around, one, *([match.back] if match.back else [])]
    ends = {match.result, match.to_x}
    numbers = {n for i in inside for n in i.outputs} - ends
    positions = {lowering.program.instructions.index(i) for i in inside}
    return not numbers & set(lowering.program.outputs) and all(
        positions.issuperset(lowering.reader_positions[n]) for n in numbers
    )


def _readers(lowering: Lowering, *numbers: int, names: tuple[str, ...]) -> list[Instruction]:
    found: dict[int, Instruction] = {}
    for number in numbers:
        for position in lowering.reader_positions[number]:
            reader = lowering.program.instructions[position]
            if reader.name in names:
                found[position] = reader
    return list(found.values())


def _source(lowering: Lowering, number: int, place: int) -> tuple[int, list[Instruction]] | None:
    """The tokens that hold queries, keys or values, and the four instructions in between."""
    batch, heads, count, size = lowering.program.specs[number].shape
    around: list[Instruction] = []
    for name in ("reshape", "split", "transpose", "reshape"):
        found = lowering.producer.get(number)
        if found is None or found.name != name:
            return None
        if name == "split" and number != found.outputs[place]:
            return None
        around.append(found)
        number = found.inputs[0]
    _, split, transpose, reshape = around
    if split.attributes != {"sizes": (1, 1, 1), "axis": 0}:
        return None
    if transpose.attributes["axes"] != (2, 0, 3, 1, 4):
        return None
    if lowering.program.specs[reshape.outputs[0]].shape != (batch, count, 3, heads, size):
        return None
    return number, around


def _through(
    lowering: Lowering, number: int, steps: tuple[tuple[int, ...], ...]
) -> list[Instruction] | None:
    """The instructions that transpose a value by these axes and reshape it to this shape."""
    axes, shape = steps
    transposes = [
        i for i in lowering.readers_named(number, "transpose") if i.attributes["axes"] == axes
    ]
    if len(transposes) != 1:
        return None
    reshapes = lowering.readers_named(transposes[0].outputs[0], "reshape")
    if len(reshapes) != 1 or lowering.program.specs[reshapes[0].outputs[0]].shape != shape:
        return None
    return [transposes[0], reshapes[0]]


def _match_back(lowering: Lowering, match: Match, forward: Instruction, back: Instruction) -> bool:
    of = match.of
    if back.inputs[1:] != (*forward.inputs[:3], *forward.outputs, forward.inputs[3]):
        return False
    transpose = lowering.producer.get(back.inputs[0])
    if transpose is None or transpose.name != "transpose":
        return False
    reshape = lowering.producer.get(transpose.inputs[0])
    if reshape is None or reshape.name != "reshape" or transpose.attributes["axes"] != (0, 2, 1, 3):
        return False
    if lowering.program.specs[reshape.outputs[0]].shape != (of.batch, of.count, of.heads, of.size):
        return False
    parts = [lowering.only_reader(number) for number in back.outputs]
    wide = 1, of.batch, of.heads, of.count, of.size
    for part in parts:
        if part is None or part.name != "reshape":
            return False
        if lowering.program.specs[part.outputs[0]].shape != wide:
            return False
    shaped = [part for part in parts if part is not None]
    concat = lowering.only_reader(shaped[0].outputs[0])
    if concat is None or concat.name != "concat" or concat.attributes["axis"] != 0:
        return False
    if concat.inputs != tuple(part.outputs[0] for part in shaped):
        return False
    shape = of.batch, of.count, 3 * of.features
    after = _through(lowering, concat.outputs[0], ((1, 3, 0, 2, 4), shape))
    if after is None:
        return False
    match.back, match.g, match.to_x = back, reshape.inputs[0], after[-1].outputs[0]
    match.around += [transpose, reshape, *shaped, concat, *after]
    return True


@rule
def attention_with_sums(lowering: Lowering, one: Instruction) -> bool:
    match = lowering.attentions.get(one.outputs[0])
    if match is None:
        return False
    of = match.of
    shape = of.batch, of.count, 3 * of.features
    x = _shaped(lowering, match.x, shape)
    specs = lowering.working_spec(match.result), Spec((of.batch, of.heads, of.count))
    how = {"heads": of.heads, "causal": of.causal, "flops": one.flops}
    made = lowering.add("attention_forward", (x,), *specs, **how)
    lowering.working[match.result] = made[0]
    match.kept = x, *made
    return True


@rule
def attention_gradient(lowering: Lowering, back: Instruction) -> bool:
    match = lowering.attentions.get(back.outputs[0])
    if match is None:
        return False
    of = match.of
    g = _shaped(lowering, match.g, (of.batch, of.count, of.features))
    how = {"heads": of.heads, "causal": of.causal, "flops": back.flops}
    spec = lowering.working_spec(match.to_x)
    (made,) = lowering.add("attention_back", (*match.kept, g), spec, **how)
    lowering.working[match.to_x] = made
    return True


def _shaped(lowering: Lowering, number: int, shape: tuple[int, ...]) -> int:
    """A value in its working form, in another shape."""
    found, spec = lowering.contiguous_working(number), Spec(shape, lowering.dtype)
    return found if lowering.specs[found] == spec else lowering.reshape(found, spec)
