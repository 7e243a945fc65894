"""`vmap` for programs: what a program does to one set of arrays, done to many sets at once.

Every value gets a leading axis, with one index for each set, unless all sets share it. There is a
rule for each operator that can compute all sets in one call; any other is recorded for each set.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.operators.core import Operator, Symbol
from pareo.program.ir import Program
from pareo.spec import Spec


@dataclass(frozen=True)
class Value:
    """A value while a program is recorded for many sets.

    array: a symbol, whose first axis is that of the sets if `stacked`; or one symbol for each set,
           for numbers such as seeds that operators take one by one.
    """

    array: Any
    stacked: bool = True

    def repeated(self, count: int) -> Any:
        """The array of all sets, even where they share it."""
        if self.stacked:
            return self.array
        return op.broadcast(self.array, (count, *self.array.shape))

    def of(self, number: int) -> Any:
        """The value of one set."""
        if not self.stacked:
            return self.array
        if isinstance(self.array, tuple):
            return self.array[number]
        # Recorded as they are, because the operators themselves refuse integers.
        own = _apply(op.part, [self.array], {"axis": 0, "between": (number, number + 1)})
        return _apply(op.reshape, [own], {"shape": self.array.shape[1:]})

    def inner(self) -> int:
        """How many axes the value of one set has."""
        return self.array.ndim - self.stacked

    def wide(self, axes: int) -> Any:
        """The array with this many axes after that of the sets, so that it broadcasts."""
        if not self.stacked or self.inner() == axes:
            return self.array
        count, *own = self.array.shape
        return op.reshape(self.array, (count, *[1] * (axes - len(own)), *own))


Rule = Callable[[int, Sequence[Value], dict[str, Any]], Any]
RULES: dict[str, Rule] = {}


def vmap(program: Program, count: int) -> Callable[[Sequence[Value]], list[Value]]:
    """A function, to be traced, that does to `count` sets what the program does to one.

    >>> from pareo import Spec, op, trace
    >>> one = trace(lambda x, w: op.relu(op.dot(x, w)), Spec((8, 4)), Spec((4, 2)))
    >>> many = vmap(one, 3)
    >>> shared, own = Spec((8, 4)), Spec((3, 4, 2))
    >>> def run(x, w):
    ...     return many([Value(x, stacked=False), Value(w)])[0].array
    >>> print(trace(run, shared, own).specs[3])
    float32[3, 8, 2]
    """

    def run(inputs: Sequence[Value]) -> list[Value]:
        values = dict(zip(program.inputs, inputs, strict=True))
        values |= {n: Value(array, False) for n, array in program.constants.items()}
        for instruction in program.instructions:
            operator = instruction.operator
            assert isinstance(operator, Operator), "stack before fusing"
            operands = [values[number] for number in instruction.inputs]
            attributes = dict(instruction.attributes)
            stacked = any(operand.stacked for operand in operands)
            if stacked:
                rule = RULES.get(operator.name)
                made = rule(count, operands, attributes) if rule else None
                if made is None:
                    made = _one_by_one(operator, count, operands, attributes)
            else:
                made = _apply(operator, [operand.array for operand in operands], attributes)
            results = made if isinstance(made, tuple) else (made,)
            for number, result in zip(instruction.outputs, results, strict=True):
                values[number] = Value(result, stacked)
        return [values[number] for number in program.outputs]

    return run


def _apply(operator: Operator, operands: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Record an operator for operands in the order of a program's instruction."""
    recorder = next(value.recorder for value in operands if isinstance(value, Symbol))
    specs = [value.spec if isinstance(value, Symbol) else Spec.of(value) for value in operands]
    return recorder.record(operator, list(operands), attributes, operator.infer(specs, attributes))


def _one_by_one(
    operator: Operator, count: int, operands: Sequence[Value], attributes: dict[str, Any]
) -> Any:
    """Record the operator for each set, and concatenate the results."""
    made = []
    for number in range(count):
        result = _apply(operator, [operand.of(number) for operand in operands], attributes)
        made.append(result if isinstance(result, tuple) else (result,))
    joined = tuple(
        op.concat([op.reshape(one, (1, *one.shape)) for one in each], axis=0)
        for each in zip(*made, strict=True)
    )
    return joined if len(joined) > 1 else joined[0]


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter a rule for operators, by name; where it returns None, each set is recorded alone."""

    def enter(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return enter


def _broadcasting(operator: Operator) -> Rule:
    """A rule that applies the operator itself, whose operands broadcast."""

    def apply(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
        axes = max(operand.inner() for operand in operands)
        return operator(*[operand.wide(axes) for operand in operands], **attributes)

    return apply


for _name in (
    "relu", "sigmoid", "tanh", "exp", "log", "add", "sub", "hadamard", "div", "dot",
    "gelu", "silu", "hard_sigmoid", "hard_swish", "leaky_relu", "clip",
):  # fmt: skip
    RULES[_name] = _broadcasting(getattr(op, _name))


@rule("scale")
def _scale(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
    alpha, a = operands
    return op.hadamard(alpha.wide(a.inner()), a.array) if alpha.stacked else (
        op.scale(alpha.array, a.array)
    )  # fmt: skip


@rule("cross_entropy")
def _cross_entropy(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
    logits, labels = operands
    return op.cross_entropy(logits.array, labels.array) if labels.stacked else None


@rule("reshape")
def _reshape(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
    return op.reshape(operands[0].array, (count, *attributes["shape"]))


def _along(operator: Operator) -> Rule:
    def along(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
        return operator(operands[0].array, attributes["axis"] + 1)

    return along


for _name in ("softmax", "log_softmax"):
    RULES[_name] = _along(getattr(op, _name))


@rule("concat")
def _concat(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
    if not all(operand.stacked for operand in operands):
        return None
    return op.concat([operand.array for operand in operands], attributes["axis"] + 1)


@rule("add_bias")
def _add_bias(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
    a, b = operands
    channels, pixels = b.array.shape[-1], [1] * (a.inner() - 2)
    leading = (count,) if b.stacked else ()
    return op.add(a.array, op.reshape(b.array, (*leading, 1, channels, *pixels)))


def _over_images(operator: Operator) -> Rule:
    """A rule for operators on single images: the images of all sets become one batch."""

    def folded(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
        x = operands[0].array
        y = operator(op.reshape(x, (count * x.shape[1], *x.shape[2:])), **attributes)
        return op.reshape(y, (count, x.shape[1], *y.shape[1:]))

    return folded


for _name in ("max_pool", "average_pool", "lrn"):
    RULES[_name] = _over_images(getattr(op, _name))


@rule("conv")
def _conv(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
    """The sets become groups of channels."""
    x, w = operands
    if not (x.stacked and w.stacked):
        return None
    _, batch, channels, height, width = x.array.shape
    _, filters, share, *window = w.array.shape
    beside = op.reshape(
        op.transpose(x.array, (1, 0, 2, 3, 4)), (batch, count * channels, height, width)
    )
    how = {**attributes, "groups": count * attributes["groups"]}
    y = op.conv(beside, op.reshape(w.array, (count * filters, share, *window)), **how)
    parted = op.reshape(y, (batch, count, filters, *y.shape[2:]))
    return op.transpose(parted, (1, 0, 2, 3, 4))


@rule("subsample")
def _subsample(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
    """A depthwise convolution in which the sets are the channels."""
    x, w, b = operands
    if not (x.stacked and w.stacked and b.stacked):
        return None
    _, batch, channels, height, width = x.array.shape
    planes = op.reshape(
        op.transpose(x.array, (1, 2, 0, 3, 4)), (batch * channels, count, height, width)
    )
    filters = op.reshape(w.array, (count, 1, *w.array.shape[1:]))
    y = op.add_bias(op.conv(planes, filters, **attributes, groups=count), b.array)
    parted = op.reshape(y, (batch, channels, count, *y.shape[2:]))
    return op.transpose(parted, (2, 0, 1, 3, 4))


def _normalised(count: int, operands: Sequence[Value], attributes: dict[str, Any], by: Any) -> Any:
    """The sets become channels beside each other."""
    x, *vectors = operands
    if not x.stacked:
        return None
    _, batch, channels, *pixels = x.array.shape
    order = (1, 0, *range(2, x.array.ndim))
    beside = op.reshape(op.transpose(x.array, order), (batch, count * channels, *pixels))
    flat = [op.reshape(v.repeated(count), (count * channels,)) for v in vectors]
    made = by(beside, *flat, **attributes)
    y, *others = made if isinstance(made, tuple) else (made,)
    y = op.transpose(op.reshape(y, (batch, count, channels, *pixels)), order)
    if not others:
        return y
    return y, *(op.reshape(vector, (count, channels)) for vector in others)


@rule("batch_norm")
def _batch_norm(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
    return _normalised(count, operands, attributes, op.batch_norm)


@rule("batch_norm_inference")
def _inference(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
    return _normalised(count, operands, attributes, op.batch_norm_inference)


@rule("layer_norm")
def _layer_norm(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
    x, scale, shift = operands
    if not x.stacked:
        return None
    axis = attributes["axis"] + 1
    how = {"axis": axis, "epsilon": attributes["epsilon"]}
    if not (scale.stacked or shift.stacked):
        return op.layer_norm(x.array, scale.array, shift.array, **how)
    size = x.array.shape[axis]
    one, zero = np.ones(size, x.array.dtype), np.zeros(size, x.array.dtype)
    shape = [count if i == 0 else size if i == axis else 1 for i in range(x.array.ndim)]
    y = op.layer_norm(x.array, one, zero, **how)
    y = op.hadamard(y, op.reshape(scale.repeated(count), shape))
    return op.add(y, op.reshape(shift.repeated(count), shape))


@rule("attention_with_sums")
def _attention(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
    *arrays, mask = operands
    q, k, v = (operand.repeated(count) for operand in arrays)
    return op.attention_with_sums(q, k, v, mask.wide(q.ndim - 1), **attributes)


@rule("pad")
def _pad(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
    widths = ((0, 0), *attributes["widths"])
    return op.pad(operands[0].array, widths, attributes["value"])


@rule("split")
def _split(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
    return op.split(operands[0].array, attributes["sizes"], attributes["axis"] + 1)


@rule("take")
def _take(count: int, operands: Sequence[Value], attributes: dict[str, Any]) -> Any:
    """Rows of all sets at once, where the sets share the rows or the places."""
    a, index = operands
    if not a.stacked:
        return op.take(a.array, index.array)
    if index.stacked:
        return None
    axes = range(a.array.ndim)
    found = op.take(op.transpose(a.array, (1, 0, *axes[2:])), index.array)
    places = index.array.ndim
    rest = range(places + 1, found.ndim)
    return op.transpose(found, (places, *range(places), *rest))
