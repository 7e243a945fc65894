"""Lowering: a program of large convolutions, rewritten channels last and in the card's precision.

The rewritten program computes the same values. Each value of the old program may appear in two
forms in the new one: plain, as it was, or working: images as (N, H, W, C), and everything in
bfloat16 where that is the precision. A value changes its form where someone needs it in the other;
an instruction without a rule here stays as it is, on plain values.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.backends.cuda.large.cudnn import Convolution
from pareo.backends.cuda.large.kernels import INSTRUCTIONS, convolution, update_all
from pareo.backends.cuda.large.merge import merged
from pareo.program.ir import Instruction, Program, readers
from pareo.program.passes import remove_dead, rewrite
from pareo.spec import Spec

LARGE = 4096  # weights of a convolution from which lowering a program pays
FEW_CHANNELS = 4  # so few that cuDNN is slow, and blocks of pixels help
Possible = Callable[[Convolution], bool]


def worth_lowering(program: Program) -> bool:
    """Whether a program has a convolution that is large enough, all of them in float32."""
    filters = [program.specs[i.inputs[1]] for i in program.instructions if i.name == "conv"]
    in_float32 = all(spec.dtype == np.float32 for spec in filters)
    return in_float32 and any(spec.size >= LARGE for spec in filters)


@rewrite
def lowered(program: Program, precision: str, possible: Possible) -> Program:
    """The program as cuDNN and the kernels beside this file run it.

    `precision` is 'float32', 'tf32' or 'bfloat16'; `possible` tells which convolutions have a plan.
    """
    return remove_dead(_Lowering(merged(program), precision, possible).program())


class _Lowering:
    """The new program while it is written."""

    def __init__(self, program: Program, precision: str, possible: Possible) -> None:
        self.old = program
        self.precision = precision
        self.possible = possible
        self.reading = readers(program)
        self.maker = {n: i for i in program.instructions for n in i.outputs}
        self.specs = dict(program.specs)
        self.instructions: list[Instruction] = []
        self.plain = {n: n for n in (*program.inputs, *program.constants)}
        self.working: dict[int, int] = {}
        self.places: dict[Any, tuple[int, bool]] = {}
        self.blocks: dict[Any, int] = {}
        self.addends: dict[int, tuple[int, ...]] = {}
        self.beside: dict[int, tuple[int, ...]] = {}
        self.updates: list[Instruction] = []
        self.products: dict[int, tuple[int, int]] = {}
        self.handled: set[int] = set()
        if precision == "bfloat16":
            import ml_dtypes

            self.dtype = np.dtype(ml_dtypes.bfloat16)
        else:
            self.dtype = np.dtype(np.float32)

    def program(self) -> Program:
        for position, instruction in enumerate(self.old.instructions):
            if position in self.handled:
                continue
            rule = RULES.get(instruction.name)
            if rule is None or not rule(self, instruction):
                self.keep(instruction)
        self.update_together()
        outputs = tuple(self.as_plain(number) for number in self.old.outputs)
        return self.old.changed(
            specs=self.specs, instructions=tuple(self.instructions), outputs=outputs
        )

    # Writing

    def keep(self, instruction: Instruction) -> None:
        """An instruction as it was, on plain values."""
        inputs = tuple(self.as_plain(number) for number in instruction.inputs)
        self.instructions.append(
            Instruction(
                instruction.operator, inputs, instruction.outputs, instruction.attributes,
                instruction.flops, instruction.bytes,
            )
        )  # fmt: skip
        self.plain |= {n: n for n in instruction.outputs}

    def add(
        self, name: str, inputs: tuple[int, ...], *specs: Spec, flops: int = 0, **attributes: Any
    ) -> tuple[int, ...]:
        """A new instruction; the numbers of its results."""
        outputs = tuple(len_of(self.specs) + i for i in range(len(specs)))
        self.specs |= dict(zip(outputs, specs, strict=True))
        moved = sum(self.specs[n].nbytes for n in (*inputs, *outputs))
        self.instructions.append(
            Instruction(INSTRUCTIONS[name], inputs, outputs, attributes, flops, moved)
        )
        return outputs

    def spec(self, number: int) -> Spec:
        """The spec of an old value in its working form."""
        shape = self.old.specs[number].shape
        if len(shape) == 4:
            shape = (shape[0], shape[2], shape[3], shape[1])
        return Spec(shape, self.dtype)

    def fresh(self, name: str, inputs: tuple[int, ...], result: int, **more: Any) -> bool:
        """A new instruction that gives an old value in its working form."""
        (self.working[result],) = self.add(name, inputs, self.spec(result), **more)
        return True

    def update_together(self) -> None:
        """The updates that were put off, in one instruction."""
        if not self.updates:
            return
        operands = list(map(self.as_plain, self.updates[0].inputs[3:]))
        taps: list[int] = []
        for update in self.updates:
            parameter, gradient, velocity = update.inputs[:3]
            given, many = self.gradient(gradient)
            operands += [self.plain[parameter], given, self.plain[velocity]]
            taps.append(many)
        outputs = tuple(number for update in self.updates for number in update.outputs)
        moved = sum(self.specs[number].nbytes for number in (*operands, *outputs))
        flops = sum(update.flops for update in self.updates)
        fusion = update_all(len(self.updates))
        how = {"taps": tuple(taps)}
        self.instructions.append(Instruction(fusion, tuple(operands), outputs, how, flops, moved))
        self.plain |= {number: number for number in outputs}

    def gradient(self, number: int) -> tuple[int, int]:
        """A gradient as the update reads it, and how many taps lie before its channels."""
        if number in self.plain:
            return self.plain[number], 1
        shape = self.old.specs[number].shape
        taps = shape[2] * shape[3] if len(shape) == 4 else 1
        return self.whole(number), taps if shape[1:2] != (1,) else 1

    # Forms

    def as_working(self, number: int) -> int:
        """A value in its working form."""
        if number not in self.working:
            plain, spec = self.plain[number], self.spec(number)
            if spec.ndim == 4 and self.old.specs[number].shape[2:] != (1, 1):
                self.fresh("channels_last", (plain,), number)
            elif spec == self.old.specs[number]:
                self.working[number] = plain
            elif spec.dtype != self.old.specs[number].dtype:
                self.fresh("cast", (plain,), number)
            else:
                self.working[number] = self.reshaped(plain, spec)
        return self.working[number]

    def as_plain(self, number: int) -> int:
        """A value as it was in the old program."""
        if number not in self.plain:
            working, spec = self.working[number], self.old.specs[number]
            if spec.ndim == 4 and spec.shape[2:] != (1, 1):
                (self.plain[number],) = self.add("channels_first", (self.solid(working),), spec)
            elif spec == self.specs[working]:
                self.plain[number] = working
            elif spec.dtype != self.specs[working].dtype:
                (self.plain[number],) = self.add("cast", (self.solid(working),), spec)
            else:
                self.plain[number] = self.reshaped(working, spec)
        return self.plain[number]

    def solid(self, number: int) -> int:
        """A value whose elements lie side by side."""
        made = next((i for i in reversed(self.instructions) if number in i.outputs), None)
        if made is not None and made.name == "part":
            return self.add("joined", (number,), self.specs[number])[0]
        return number

    def whole(self, number: int) -> int:
        """A value in its working form, its elements side by side."""
        self.working[number] = self.solid(self.as_working(number))
        return self.working[number]

    def reshaped(self, number: int, spec: Spec) -> int:
        """A new number for the same elements in another shape."""
        fresh = len_of(self.specs)
        self.specs[fresh] = spec
        self.instructions.append(
            Instruction(op.reshape, (number,), (fresh,), {"shape": spec.shape}, 0, 0)
        )
        return fresh

    # What the rules ask

    def only_reader(self, number: int) -> Instruction | None:
        """The instruction that alone reads a value, which is no result."""
        positions = self.reading[number]
        if len(positions) != 1 or number in self.old.outputs:
            return None
        return self.old.instructions[positions[0]]

    def reader(self, number: int, name: str, **attributes: Any) -> Instruction | None:
        """An instruction of a name among the readers of a value."""
        for position in self.reading[number]:
            found = self.old.instructions[position]
            if found.name == name and attributes.items() <= dict(found.attributes).items():
                return found
        return None

    def take(self, *instructions: Instruction | None) -> None:
        """Mark instructions as done by what was written for another one."""
        for taken in instructions:
            if taken is not None:
                self.handled.add(self.old.instructions.index(taken))

    def is_image(self, number: int) -> bool:
        """Whether a value is there in its working form, as images."""
        return number in self.working and self.old.specs[number].ndim == 4


def len_of(specs: Mapping[int, Spec]) -> int:
    """The first free number."""
    return max(specs, default=-1) + 1


# Convolution


def _block(lowering: _Lowering, x: int, filters: tuple[int, ...], how: Mapping[str, Any]) -> int:
    """The side of the blocks that a first layer's pixels are put in; 0 for none."""
    stride = how["stride"][0]
    plain = how["stride"] == (stride, stride) and how["dilation"] == (1, 1) and how["groups"] == 1
    images = x in lowering.old.inputs and lowering.old.specs[x].dtype == np.float32
    few = filters[1] <= FEW_CHANNELS and stride > 1
    return stride if plain and images and few else 0


def _blocked(lowering: _Lowering, x: int, filters: Any, out: Any, block: int) -> tuple[Spec, Spec]:
    """The specs of a first layer's images and filters as blocks of pixels."""
    images, channels = lowering.old.specs[x].shape[0], filters[1]
    many = 16 // lowering.dtype.itemsize
    wide = -(-channels * block * block // many) * many
    rows, columns = (-(-side // block) for side in filters[2:])
    blocks = Spec((images, out[2] + rows - 1, out[3] + columns - 1, wide), lowering.dtype)
    return blocks, Spec((filters[0], rows, columns, wide), lowering.dtype)


def _plain_how(lowering: _Lowering, how: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: how[name] for name in ("stride", "padding", "dilation")}
    return {**kept, "precision": lowering.precision}


ONE_STEP = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1)}


def _conv(lowering: _Lowering, conv: Instruction) -> bool:
    x, w = conv.inputs
    how = dict(conv.attributes)
    result, flops, ending = conv.outputs[0], conv.flops, ""
    bias: tuple[int, ...] = ()
    add = lowering.only_reader(result)
    relu = None
    if add is not None and add.name == "add_bias" and add.inputs[0] == result:
        result, flops, ending, bias = add.outputs[0], flops + add.flops, "bias", add.inputs[1:]
        relu = lowering.only_reader(result)
        if relu is not None and relu.name == "relu":
            result, flops, ending = relu.outputs[0], flops + relu.flops, "bias_relu"
        else:
            relu = None
    else:
        add = None
    if not all(n in lowering.plain for n in bias):
        return False
    block = _block(lowering, x, lowering.old.specs[w].shape, how)
    if block:
        shapes = lowering.old.specs[w].shape, lowering.old.specs[result].shape
        images, filters = _blocked(lowering, x, *shapes, block)
        new = {**ONE_STEP, "precision": lowering.precision}
    else:
        images, filters, new = lowering.spec(x), lowering.spec(w), _plain_how(lowering, how)
    out = lowering.spec(result)
    endings = [ending, ""] if ending else [""]  # the bias can be added afterwards
    possible = [
        end for end in endings
        if lowering.possible(convolution("result", images, filters, out, ending=end, **new))
    ]  # fmt: skip
    if not possible:
        return False
    if block:
        key = (x, how["padding"], images)
        if key not in lowering.blocks:
            (lowering.blocks[key],) = lowering.add(
                "image_blocks", (lowering.as_plain(x),), images, block=block, padding=how["padding"]
            )
        (blocks,) = lowering.add("filter_blocks", (lowering.as_plain(w),), filters, block=block)
        operands: tuple[int, ...] = (lowering.blocks[key], blocks)
    else:
        operands = (lowering.whole(x), lowering.as_working(w))
    lowering.take(add, relu)
    if possible[0] == ending:
        numbers = tuple(lowering.as_working(n) for n in bias)
        more: dict[str, Any] = {"flops": flops, "ending": ending, **new}
        return lowering.fresh("conv_forward", (*operands, *numbers), result, **more)
    numbers = tuple(lowering.plain[n] for n in bias)
    more = {"flops": conv.flops, "ending": "", **new}
    (bare,) = lowering.add("conv_forward", operands, out, **more)
    more = {"flops": flops - conv.flops, "relu": relu is not None}
    return lowering.fresh("bias_forward", (bare, *numbers), result, **more)


def _conv_input_gradient(lowering: _Lowering, back: Instruction) -> bool:
    g, w = back.inputs
    result = back.outputs[0]
    new = _plain_how(lowering, back.attributes)
    specs = lowering.spec(result), lowering.spec(w), lowering.spec(g)
    if not lowering.possible(convolution("images", *specs, **new)):
        return False
    operands = lowering.whole(g), lowering.as_working(w)
    return lowering.fresh("conv_images", operands, result, flops=back.flops, **new)


def _conv_weight_gradient(lowering: _Lowering, back: Instruction) -> bool:
    x, g = back.inputs
    result = back.outputs[0]
    filters, out = lowering.old.specs[result].shape, lowering.old.specs[g].shape
    block = _block(lowering, x, filters, back.attributes)
    if block:
        specs = _blocked(lowering, x, filters, out, block)
        images = lowering.blocks.get((x, back.attributes["padding"], specs[0]))
        new = {**ONE_STEP, "precision": lowering.precision}
        if images is None or not lowering.possible(
            convolution("filters", *specs, lowering.spec(g), **new)
        ):
            return False
        operands = images, lowering.whole(g)
        (found,) = lowering.add("conv_filters", operands, specs[1], flops=back.flops, **new)
        (lowering.plain[result],) = lowering.add(
            "filters_of_blocks", (found,), lowering.old.specs[result], block=block
        )
        return True
    new = _plain_how(lowering, back.attributes)
    three = lowering.spec(x), lowering.spec(result), lowering.spec(g)
    if not lowering.possible(convolution("filters", *three, **new)):
        return False
    operands = (
        lowering.whole(x),
        lowering.whole(g),
    )
    return lowering.fresh("conv_filters", operands, result, flops=back.flops, **new)


# Bias and activation


def _channel_sum(lowering: _Lowering, number: int) -> Instruction | None:
    """The instruction that sums a value over everything but its channels."""
    axes = tuple(axis for axis in range(lowering.old.specs[number].ndim) if axis != 1)
    return lowering.reader(number, "sum", axis=axes, keepdims=False)


def _in_work(lowering: _Lowering, number: int) -> bool:
    """Whether a value is images in their working form, or anything in a precision of its own."""
    reduced = lowering.dtype != np.float32 and lowering.old.specs[number].ndim == 2
    return lowering.is_image(number) or (reduced and number in lowering.working)


def _relu_gradient(lowering: _Lowering, back: Instruction) -> bool:
    g, y = back.inputs
    result = back.outputs[0]
    if not _in_work(lowering, y):
        return False
    sums = _channel_sum(lowering, result)
    if sums is None:
        operands = lowering.as_working(g), lowering.whole(y)
        return lowering.fresh("relu_back", operands, result, flops=back.flops)
    lowering.take(sums)
    specs = lowering.spec(result), lowering.old.specs[sums.outputs[0]]
    flops = back.flops + sums.flops
    gradients = tuple(map(lowering.as_working, lowering.beside.pop(g, (g,))))
    several = (lowering.whole(y), *gradients)
    found = lowering.add("relu_bias_back", several, *specs, flops=flops)
    lowering.working[result], lowering.plain[sums.outputs[0]] = found
    return True


def _sum(lowering: _Lowering, fold: Instruction) -> bool:
    g = fold.inputs[0]
    if not _in_work(lowering, g) or _channel_sum(lowering, g) is not fold:
        return False
    result = fold.outputs[0]
    operands = (lowering.as_working(g),)
    found = lowering.add("bias_back", operands, lowering.old.specs[result], flops=fold.flops)
    (lowering.plain[result],) = found
    return True


# Dense layers, where they have a precision of their own


def _reduced(lowering: _Lowering, *numbers: int) -> bool:
    shapes = [lowering.old.specs[number].shape for number in numbers]
    return lowering.dtype != np.float32 and all(len(shape) == 2 for shape in shapes)


def _straight(lowering: _Lowering, number: int) -> tuple[int, bool]:
    """A matrix, and whether it is to be turned: a transpose is not carried out, but passed on."""
    made = lowering.maker.get(number)
    if made is not None and made.name == "transpose" and made.attributes["axes"] == (1, 0):
        return made.inputs[0], True
    return number, False


def _dot(lowering: _Lowering, dot: Instruction) -> bool:
    """In working precision; the results that the loss or the optimiser reads in float32."""
    (a, a_turned), (b, b_turned) = (_straight(lowering, n) for n in dot.inputs)
    update = lowering.only_reader(dot.outputs[0])
    if update is not None and update.name == "sgd" and a_turned and not b_turned:
        shape, many = lowering.old.specs[dot.outputs[0]].shape, 16 // lowering.dtype.itemsize
        whole = len(shape) == 2 and shape[0] % many == shape[1] % many == 0
        if whole and lowering.precision != "float32" and update.inputs[1] == dot.outputs[0]:
            lowering.products[dot.outputs[0]] = a, b  # multiplied within the update
            return True
    if not _reduced(lowering, *dot.inputs):
        return False
    operands = lowering.as_working(a), lowering.as_working(b)
    more: dict[str, Any] = {"turned": (a_turned, b_turned), "flops": dot.flops}
    result = dot.outputs[0]
    if any(name not in WORKING_READERS for name in _readers_of(lowering, result)):
        (lowering.plain[result],) = lowering.add(
            "dot_working", operands, lowering.old.specs[result], **more
        )
        return True
    return lowering.fresh("dot_working", operands, result, **more)


def _sgd(lowering: _Lowering, update: Instruction) -> bool:
    """Of a dense layer with its product; all others together in the end."""
    parameter, gradient, velocity, *numbers = update.inputs
    given = (parameter, velocity, *numbers)
    alone = all(not lowering.reading[number] for number in update.outputs)
    single = all(lowering.old.specs[number].shape == () for number in numbers)
    if not (alone and single and all(number in lowering.plain for number in given)):
        assert gradient not in lowering.products
        return False
    if gradient in lowering.products:
        x, g = lowering.products[gradient]
        operands = (lowering.as_working(x), lowering.as_working(g), *given)
        specs = [lowering.old.specs[number] for number in update.outputs]
        rows = lowering.old.specs[x].shape[0]
        flops = update.flops + 2 * rows * specs[0].size
        found = lowering.add("update_dense", operands, *specs, flops=flops)
        lowering.plain |= dict(zip(update.outputs, found, strict=True))
        return True
    first = lowering.updates[0] if lowering.updates else update
    if first.inputs[3:] != update.inputs[3:]:
        return False
    lowering.updates.append(update)
    return True


def _readers_of(lowering: _Lowering, number: int) -> list[str]:
    """Who reads a value in the end, a bias and transposes passed over."""
    found = ["a result"] if number in lowering.old.outputs else []
    for position in lowering.reading[number]:
        reader = lowering.old.instructions[position]
        if reader.name in ("add_bias", "transpose"):
            found += _readers_of(lowering, reader.outputs[0])
        else:
            found.append(reader.name)
    return found


WORKING_READERS = ("dot", "relu", "dropout", "relu_gradient", "reshape", "sum")


def _transpose(lowering: _Lowering, transpose: Instruction) -> bool:
    """Left out where only products read it: they turn their operands themselves."""
    result = transpose.outputs[0]
    names = [lowering.old.instructions[p].name for p in lowering.reading[result]]
    inner = result not in lowering.old.outputs and all(name == "dot" for name in names)
    return inner and _reduced(lowering, result) and transpose.attributes["axes"] == (1, 0)


def _add_bias(lowering: _Lowering, add: Instruction) -> bool:
    x, b = add.inputs
    if not (_reduced(lowering, x) and x in lowering.working):
        return False
    relu, result, flops = lowering.only_reader(add.outputs[0]), add.outputs[0], add.flops
    if relu is not None and relu.name == "relu":
        result, flops = relu.outputs[0], flops + relu.flops
        lowering.take(relu)
    else:
        relu = None
    operands = lowering.working[x], lowering.as_plain(b)
    return lowering.fresh("bias_forward", operands, result, flops=flops, relu=relu is not None)


def _dropout(lowering: _Lowering, dropout: Instruction) -> bool:
    x, seed = dropout.inputs
    if not (_reduced(lowering, x) and x in lowering.working):
        return False
    operands = lowering.working[x], lowering.as_plain(seed)
    more = dict(dropout.attributes, flops=dropout.flops)
    return lowering.fresh("dropout_working", operands, dropout.outputs[0], **more)


# Pooling and normalisation


def _key(x: int, how: Mapping[str, Any]) -> Any:
    return x, tuple(sorted((name, value) for name, value in how.items()))


def _max_pool(lowering: _Lowering, pool: Instruction) -> bool:
    x, how = pool.inputs[0], dict(pool.attributes)
    if not lowering.is_image(x):
        return False
    operands, result = (lowering.whole(x),), pool.outputs[0]
    backs = [
        lowering.old.instructions[p]
        for p in lowering.reading[x]
        if lowering.old.instructions[p].name == "max_pool_gradient"
    ]
    backs = [b for b in backs if b.inputs[1] == x and dict(b.attributes) == how]
    if not backs or how["size"][0] * how["size"][1] > 254:
        return lowering.fresh("max_pool_forward", operands, result, flops=pool.flops, **how)
    relu = all(_then_relu(lowering, back) is not None for back in backs)
    spec = lowering.spec(result)
    found = lowering.add(
        "max_pool_places", operands, spec, Spec(spec.shape, "uint8"),
        flops=pool.flops, relu=relu, **how,
    )  # fmt: skip
    lowering.working[result] = found[0]
    lowering.places[_key(x, how)] = found[1], relu
    return True


def _then_relu(lowering: _Lowering, back: Instruction) -> Instruction | None:
    """The way back through relu right behind a way back, if it is by the same images."""
    relu = lowering.only_reader(back.outputs[0])
    same = relu is not None and relu.name == "relu_gradient" and relu.inputs[1] == back.inputs[1]
    return relu if same else None


def _max_pool_gradient(lowering: _Lowering, back: Instruction) -> bool:
    g, x = back.inputs
    how = dict(back.attributes)
    if _key(x, how) not in lowering.places:
        return False
    places, through_relu = lowering.places[_key(x, how)]
    operands = lowering.as_working(g), places
    if not through_relu:
        return lowering.fresh("max_pool_back", operands, back.outputs[0], flops=back.flops, **how)
    relu = _then_relu(lowering, back)
    assert relu is not None
    result, flops = relu.outputs[0], back.flops + relu.flops
    sums = _channel_sum(lowering, result)
    lowering.take(relu, sums)
    if sums is None:
        return lowering.fresh("max_pool_back", operands, result, flops=flops, **how)
    specs = lowering.spec(result), lowering.old.specs[sums.outputs[0]]
    found = lowering.add("max_pool_bias_back", operands, *specs, flops=flops + sums.flops, **how)
    lowering.working[result], lowering.plain[sums.outputs[0]] = found
    return True


def _average_pool(lowering: _Lowering, pool: Instruction) -> bool:
    x = pool.inputs[0]
    if not lowering.is_image(x):
        return False
    operands = (lowering.whole(x),)
    more = dict(pool.attributes, flops=pool.flops)
    return lowering.fresh("average_pool_forward", operands, pool.outputs[0], **more)


def _average_pool_gradient(lowering: _Lowering, back: Instruction) -> bool:
    operands = (lowering.whole(back.inputs[0]),)
    more = dict(back.attributes, flops=back.flops)
    return lowering.fresh("average_pool_back", operands, back.outputs[0], **more)


def _lrn(lowering: _Lowering, lrn: Instruction) -> bool:
    x = lrn.inputs[0]
    if not lowering.is_image(x):
        return False
    operands = (lowering.whole(x),)
    more = dict(lrn.attributes, flops=lrn.flops)
    return lowering.fresh("lrn_forward", operands, lrn.outputs[0], **more)


def _lrn_gradient(lowering: _Lowering, back: Instruction) -> bool:
    g, x = back.inputs
    if not lowering.is_image(x):
        return False
    operands = lowering.whole(g), lowering.whole(x)
    how, result = dict(back.attributes), back.outputs[0]
    relu = _then_relu(lowering, back)
    sums = _channel_sum(lowering, relu.outputs[0]) if relu else None
    wide = lowering.old.specs[x].shape[1] * lowering.dtype.itemsize % 16 == 0
    if relu is None or sums is None or how["size"] != 5 or not wide:
        return lowering.fresh("lrn_back", operands, result, flops=back.flops, **how)
    lowering.take(relu, sums)
    result, flops = relu.outputs[0], back.flops + relu.flops + sums.flops
    specs = lowering.spec(result), lowering.old.specs[sums.outputs[0]]
    found = lowering.add("lrn_relu_bias_back", operands, *specs, flops=flops, **how)
    lowering.working[result], lowering.plain[sums.outputs[0]] = found
    return True


# Shapes


def _through_relu_and_bias(lowering: _Lowering, g: int) -> bool:
    """Whether a gradient goes nowhere but back through a relu, and from there to a bias."""
    back = lowering.only_reader(g)
    if back is None or back.name != "relu_gradient" or back.inputs[0] != g:
        return False
    return _channel_sum(lowering, back.outputs[0]) is not None


def _concat(lowering: _Lowering, join: Instruction) -> bool:
    if join.attributes["axis"] != 1 or not all(map(lowering.is_image, join.inputs)):
        return False
    result = join.outputs[0]
    if len(join.inputs) <= 4 and _through_relu_and_bias(lowering, result):
        lowering.beside[result] = join.inputs  # they are read side by side
        return True
    operands = tuple(map(lowering.as_working, join.inputs))
    return lowering.fresh("joined", operands, result)


def _part(lowering: _Lowering, part: Instruction) -> bool:
    a = part.inputs[0]
    if part.attributes["axis"] != 1 or not lowering.is_image(a):
        return False
    result = part.outputs[0]
    fresh = len_of(lowering.specs)
    lowering.specs[fresh] = lowering.spec(result)
    attributes = {"axis": 3, "between": part.attributes["between"]}
    source = lowering.whole(a)
    lowering.instructions.append(Instruction(op.part, (source,), (fresh,), attributes, 0, 0))
    lowering.working[result] = fresh
    return True


def _add(lowering: _Lowering, add: Instruction) -> bool:
    """A sum of images: of up to four, where the sums on the way there are read by nobody else."""
    images = [lowering.is_image(n) or n in lowering.addends for n in add.inputs]
    if not any(images) or len({lowering.old.specs[n] for n in add.inputs}) != 1:
        return False
    parts = [part for n in add.inputs for part in lowering.addends.pop(n, (n,))]
    following = lowering.only_reader(add.outputs[0])
    if following is not None and following.name == "add" and len(parts) < 4:
        lowering.addends[add.outputs[0]] = tuple(parts)
        return True
    operands = tuple(lowering.whole(n) for n in parts)
    flops = add.flops * (len(parts) - 1)
    return lowering.fresh("total", operands, add.outputs[0], flops=flops)


def _reshape(lowering: _Lowering, reshape: Instruction) -> bool:
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


RULES: dict[str, Callable[[_Lowering, Instruction], bool]] = {
    "conv": _conv,
    "conv_input_gradient": _conv_input_gradient,
    "conv_weight_gradient": _conv_weight_gradient,
    "relu_gradient": _relu_gradient,
    "sum": _sum,
    "dot": _dot,
    "sgd": _sgd,
    "transpose": _transpose,
    "add_bias": _add_bias,
    "dropout": _dropout,
    "max_pool": _max_pool,
    "max_pool_gradient": _max_pool_gradient,
    "average_pool": _average_pool,
    "average_pool_gradient": _average_pool_gradient,
    "lrn": _lrn,
    "lrn_gradient": _lrn_gradient,
    "concat": _concat,
    "part": _part,
    "add": _add,
    "reshape": _reshape,
}
