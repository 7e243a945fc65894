"""Lines of elementwise operators."""

import math
from collections.abc import Sequence
from typing import Any

from pareo.backends.compiled.loops.groups.emitters.moves import repeated
from pareo.backends.compiled.loops.groups.emitters.operands import Emitter, operand
from pareo.backends.compiled.loops.groups.segments import Node
from pareo.backends.compiled.loops.groups.source import GroupSource
from pareo.backends.compiled.loops.source import Unsupported

MOST_NUMBERS = 64  # of a constant, which are written into the source


def elementwise(module: str, *names: str) -> Emitter:
    """An operator whose loop has its name, and takes some attributes as an array of numbers."""

    def emitter(s: GroupSource, node: Node, position: int) -> None:
        name = node.name
        if name.startswith("gelu") and node.attributes["approximate"]:
            name = name.replace("gelu", "gelu_tanh")
        numbers = [node.attributes[attribute] for attribute in names]
        extra = [s.once(f"np.array({numbers}, np.float32)")] if numbers else []
        _loop(s, f"{module}.{name}", node.outputs[0], node.inputs, extra, position)

    return emitter


def combine(s: GroupSource, node: Node, position: int) -> None:
    """Sums, differences, products and quotients."""
    a, b = node.inputs
    swaps = node.name in ("add", "hadamard")
    if swaps and not s.is_free_after(a, position) and s.is_free_after(b, position):
        a, b = b, a
    _loop(s, f"elementwise_loops.{node.name}", node.outputs[0], (a, b), [], position)


def scale(s: GroupSource, node: Node, position: int) -> None:
    """Products with a number."""
    alpha, a = node.inputs
    factor = s.program.constants.get(alpha)
    if factor is None:
        raise Unsupported("scale by a value")
    extra = [s.once(f"np.array([{float(factor)!r}], np.float32)")]
    _loop(s, "elementwise_loops.scale", node.outputs[0], (a,), extra, position)


def _loop(
    s: GroupSource, name: str, out: int, operands: Sequence[int], extra: list[str], position: int
) -> None:
    """An elementwise loop, over its first operand if nothing reads that afterwards."""
    views = [_elements(s, number, out) for number in operands]
    others = [s.root(number) for number in operands[1:]]
    first = operands[0]
    whole = s.size(first) == s.size(out)
    if whole and s.can_take_over(out, first, position) and s.root(first) not in others:
        s.take_over(out, first)
        s.add(f"{name}_in_place({', '.join([*views, *extra])})")
    else:
        s.allocate(out)
        s.add(f"{name}({', '.join([s.view(out), *views, *extra])})")


def _elements(s: GroupSource, number: int, out: int) -> str:
    """The elements of an operand, as many as a result has: those of a smaller one are repeated."""
    constant = s.program.constants.get(number)
    if constant is not None:
        return _numbers(s, constant, s.shape(out))
    if number in s.weights:
        return _channels(s, number, s.shape(out))
    if s.size(operand(s, number)) == s.size(out):
        return s.view(number)
    return repeated(s, number, s.shape(out))


def _channel_axis(shape: Sequence[int], wanted: Sequence[int]) -> int:
    """How many elements of the wanted shape each number of a smaller shape stands for."""
    wide = [axis for axis, size in enumerate(shape, len(wanted) - len(shape)) if size > 1]
    if len(wide) > 1 or (wide and math.prod(wanted[: wide[0]]) > 1):
        raise Unsupported("an elementwise operator that repeats numbers of many axes")
    return math.prod(wanted) // math.prod(shape)


def _numbers(s: GroupSource, constant: Any, wanted: Sequence[int]) -> str:
    """A constant with one number for each channel, or one for all, as wide as a value."""
    times = _channel_axis(constant.shape, wanted) * s.lanes
    numbers = [float(number) for number in constant.reshape(-1)]
    if len(numbers) > MOST_NUMBERS or not all(map(math.isfinite, numbers)):
        raise Unsupported("an elementwise operator with many numbers, or some that are not finite")
    return s.once(f"np.repeat(np.array({numbers}, np.float32), {times})")


def _channels(s: GroupSource, number: int, wanted: Sequence[int]) -> str:
    """A parameter with one number for each channel, as wide as a value, once for each step."""
    times = _channel_axis(s.shape(number), wanted) * s.lanes
    parameter = s.parameter_of(number, "an elementwise operator with a transposed parameter")
    size = s.size(parameter)
    key = f"v{parameter} {times} times"
    if key not in s.kept:
        s.kept[key] = s.arena.address(s.arena.keep(size * times))
        target = s.array(s.kept[key], size, times)
        s.per_step.append(f"moves.spread({target}, {s.parameter(parameter)})")
    return s.array(s.kept[key], size * times)
