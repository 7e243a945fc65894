"""How each instruction of one image's program is written down as a line of a generated loop."""

from collections.abc import Callable, Sequence
from typing import Any

from pareo.backends.compiled import templates, tiles
from pareo.operators.core import Operator


class Unsuited(Exception):
    """Something in a program that no generated line stands for."""


class Writer:
    """Writes the lines of one image's pass."""

    def __init__(self, program: Any, layout: Any, sums: dict[int, str]) -> None:
        self.program = program
        self.layout = layout
        self.sums = sums  # results that are added up, and the names of their sums
        self.functions: list[str] = []
        self.before: list[str] = []
        self.lines: list[str] = []

    def spec(self, number: int) -> Any:
        return self.program.specs[number]

    def shape(self, number: int) -> tuple[int, ...]:
        return self.spec(number).shape

    def name(self, number: int) -> str:
        return f"v{number}"

    def flat(self, number: int) -> str:
        return f"v{number}.reshape(-1)"

    def turned(self, number: int) -> int | None:
        """The value that this one is the transpose of."""
        for instruction in self.program.instructions:
            if instruction.outputs[0] == number and instruction.name == "transpose":
                return int(instruction.inputs[0])
        return None

    def place(self, number: int) -> int | None:
        """Where a value's memory begins; None outside the arena."""
        while number in self.layout.views:
            number = self.layout.views[number]
        return self.layout.offsets.get(number)

    def add(self, line: str) -> None:
        self.lines.append(line)

    def function(self, template: templates.Template, **sizes: int) -> str:
        """A function from a template, with its sizes written in; its name."""
        name = f"{template.__name__}_{len(self.functions)}"
        self.functions.append(template(name, **sizes))
        return name

    def collect(self, number: int) -> None:
        """A finished result joins its sum."""
        if number in self.sums:
            self.add(f"parts.add_to({self.sums[number]}.reshape(-1), {self.flat(number)})")

    def partner(self, instruction: Any, name: str, shared: int) -> Any:
        """The instruction of a name, right before or after, that reads the same errors."""
        at = self.program.instructions.index(instruction)
        for other in self.program.instructions[max(0, at - 1) : at + 2]:
            if other.name == name and shared in other.inputs:
                return other
        return None

    def write(self) -> None:
        for instruction in self.program.instructions:
            operator = instruction.operator
            if isinstance(operator, Operator) and operator.look is not None:
                self._view(instruction)
                continue
            emit = EMITTERS.get(instruction.name)
            if emit is None:
                raise Unsuited(instruction.name)
            emit(self, instruction)

    def _view(self, instruction: Any) -> None:
        source, result = instruction.inputs[0], instruction.outputs[0]
        if instruction.name == "transpose":
            return  # the products that read it know how
        if instruction.name != "reshape":
            raise Unsuited(instruction.name)
        line = f"v{result} = v{source}.reshape({self.shape(result)})"
        # What is not part of an image lies where it lies for the whole run.
        target = self.lines if source in self._of_image() else self.before
        target.append(line)
        self.collect(result)

    def _of_image(self) -> set[int]:
        return set(self.program.inputs[-2:])


def _elementwise(name: str) -> Callable[[Writer, Any], None]:
    def emit(w: Writer, i: Any) -> None:
        _activate(w, name, i.outputs[0], *i.inputs)
        w.collect(i.outputs[0])

    return emit


def _activate(w: Writer, name: str, out: int, first: int, *rest: int) -> None:
    """An elementwise loop, in place where the plan put the result where the operand is."""
    here = out == first or w.place(out) == w.place(first)
    given = (first, *rest) if here else (out, first, *rest)
    w.add(f"loops.{name}{'_here' if here else ''}({', '.join(w.flat(n) for n in given)})")


def _conv(activation: str) -> Callable[[Writer, Any], None]:
    def emit(w: Writer, i: Any) -> None:
        (x, filters, bias), y = i.inputs, i.outputs[0]
        _plain(i.attributes)
        _, count, height, width = w.shape(y)
        _, _, kh, kw = w.shape(filters)
        wide = w.shape(x)[3]
        if not tiles.suits(w.shape(y), w.shape(filters)):
            raise Unsuited("conv")
        plane = height * width
        w.add(f"for i in range({height}):")
        w.add(f"    for k in range(0, {count}, 3):")
        w.add(
            f"        tiles.forward_row(v{y}.ctypes.data + 4 * (k * {plane} + i * {width}), "
            f"v{x}.ctypes.data + 4 * i * {wide}, v{filters}.ctypes.data + 4 * k * {kh * kw}, "
            f"v{bias}.ctypes.data + 4 * k, {plane}, {width}, {wide}, {kh}, {kw})"
        )
        if activation:
            _activate(w, activation, y, y)

    return emit


def _conv_gradient(activation: str) -> Callable[[Writer, Any], None]:
    def emit(w: Writer, i: Any) -> None:
        (x, g, y), (gw, gb) = i.inputs, i.outputs
        _plain(i.attributes)
        if gw not in w.sums or gb not in w.sums:
            raise Unsuited("conv gradient that is used")
        _, count, height, width = w.shape(g)
        _, _, kh, kw = w.shape(gw)
        wide = w.shape(x)[3]
        plane = height * width
        _activate(w, f"{activation}_gradient", g, g, y)
        w.add(f"parts.add_planes({w.sums[gb]}, v{g}.reshape(({count}, {plane})))")
        w.add(f"for k in range(0, {count}, 3):")
        w.add(f"    for u in range({kh}):")
        w.add(
            f"        tiles.gradient_row({w.sums[gw]}.ctypes.data + 4 * (k * {kh * kw} + u * {kw}),"
            f" v{x}.ctypes.data + 4 * u * {wide}, v{g}.ctypes.data + 4 * k * {plane}, "
            f"{height}, {width}, {wide}, {kh}, {kw})"
        )

    return emit


def _plain(how: Any) -> None:
    one = (1, 1)
    if how["stride"] != one or how["dilation"] != one or any(how["padding"]) or how["groups"] != 1:
        raise Unsuited("conv with stride, padding, dilation or groups")


def _dot(w: Writer, i: Any) -> None:
    (a, b), out = i.inputs, i.outputs[0]
    left, right = w.turned(a), w.turned(b)
    rows, columns = w.shape(out)
    sizes = {"rows": rows, "columns": columns, "depth": w.shape(a)[1]}
    if left is not None and right is None and out in w.sums:
        name = w.function(templates.add_outer, **sizes)
        w.add(f"{name}({w.sums[out]}, v{left}, v{b})")
        return
    if left is not None:
        raise Unsuited("dot of a transpose")
    if right is None:
        w.add(f"{w.function(templates.dot, **sizes)}(v{out}, v{a}, v{b})")
    else:
        name = w.function(templates.dot_turned, **sizes)
        w.add(f"{name}(v{out}, v{a}, v{right})")
    w.collect(out)


def _dense(activation: str) -> Callable[[Writer, Any], None]:
    def emit(w: Writer, i: Any) -> None:
        (x, matrix, bias), y = i.inputs, i.outputs[0]
        if w.turned(x) is not None or w.turned(matrix) is not None:
            raise Unsuited("dense layer of transposes")
        (rows, depth), columns = w.shape(x), w.shape(y)[1]
        name = w.function(templates.dot, rows=rows, columns=columns, depth=depth)
        w.add(f"{name}(v{y}, v{x}, v{matrix})")
        w.add(f"parts.add_rows(v{y}, v{y}, v{bias})")
        if activation:
            _activate(w, activation, y, y)

    return emit


def _dense_gradient(activation: str) -> Callable[[Writer, Any], None]:
    def emit(w: Writer, i: Any) -> None:
        (g, y), (d, sums) = i.inputs, i.outputs
        _activate(w, f"{activation}_gradient", d, g, y)
        # One image has one row: it is its own sum.
        w.add(f"{w.flat(sums)}[:] = {w.flat(d)}")
        w.collect(sums)

    return emit


def _subsample(w: Writer, i: Any) -> None:
    (x, filters, bias), y = i.inputs, i.outputs[0]
    kh, kw = _windows(w.shape(filters), i.attributes["stride"], w.shape(x))
    planes, height, width = w.shape(y)[1:]
    sizes = {"planes": planes, "height": height, "width": width, "kh": kh, "kw": kw}
    name = w.function(templates.shrink, **sizes)
    w.add(
        f"{name}(v{y}.reshape({(planes, height, width)}), "
        f"v{x}.reshape({(planes, height * kh, width * kw)}), {w.flat(filters)}, "
        f"{w.flat(bias)}[0], {_room(w, y, (kh, width * kw), (width * kw,))})"
    )


def _room(w: Writer, number: int, *shapes: tuple[int, ...]) -> str:
    """The names of small work arrays, made once before the loop."""
    names = [f"room{number}_{which}" for which in range(len(shapes))]
    w.before += [f"{n} = np.zeros({s}, np.float32)" for n, s in zip(names, shapes, strict=True)]
    return ", ".join(names)


def _windows(window: Sequence[int], stride: Sequence[int], image: Sequence[int]) -> Any:
    kh, kw = window[-2:]
    if tuple(stride) != (kh, kw) or image[-2] % kh or image[-1] % kw:
        raise Unsuited("windows that overlap or leave a rest")
    return kh, kw


def _grow(w: Writer, i: Any) -> None:
    """Back through subsampling, as the two gradients of a convolution that it is traced as."""
    (g, filters), gx = i.inputs, i.outputs[0]
    other = w.partner(i, "conv_weight_gradient", g)
    if w.shape(filters)[:2] != (1, 1) or any(i.attributes["padding"]) or other is None:
        raise Unsuited("gradient of a convolution")
    x, gw = other.inputs[0], other.outputs[0]
    kh, kw = _windows(w.shape(filters), i.attributes["stride"], w.shape(gx))
    planes, _, height, width = w.shape(g)
    sizes = {"planes": planes, "height": height, "width": width, "kh": kh, "kw": kw}
    name = w.function(templates.shrink_back, **sizes)
    block = (kh * width * kw,)
    w.add(f"{w.flat(gw)}[:] = 0")
    arrays = ", ".join(w.flat(n) for n in (gx, gw, x, g, filters))
    w.add(f"{name}({arrays}, {_room(w, gx, block, block, block)})")
    w.collect(gw)


def _with_partner(w: Writer, i: Any) -> None:
    """Written already, together with the gradient of the images."""
    if w.partner(i, "conv_input_gradient", i.inputs[1]) is None:
        raise Unsuited("gradient of a convolution")


def _sum(w: Writer, i: Any) -> None:
    a, out = i.inputs[0], i.outputs[0]
    if w.spec(out).size == 1:
        w.add(f"{w.flat(out)}[:] = 0")
        w.add(f"parts.add_planes({w.flat(out)}, v{a}.reshape((1, {w.spec(a).size})))")
    elif w.spec(out).size == w.spec(a).size:
        w.add(f"{w.flat(out)}[:] = {w.flat(a)}")
    else:
        raise Unsuited("sum")
    w.collect(out)


def _loss(w: Writer, i: Any) -> None:
    (_, logits, labels), (out, d) = i.inputs, i.outputs
    w.add(f"{w.flat(out)}[0] = loss.cross_entropy_rows(v{d}, v{logits}, v{labels}, 1.0, True)")


EMITTERS: dict[str, Callable[[Writer, Any], None]] = {
    **{
        name: _elementwise(name)
        for name in ("sigmoid", "tanh", "relu", "sigmoid_gradient", "tanh_gradient",
                     "relu_gradient")
    },
    "conv_bias": _conv(""),
    "dot": _dot,
    "dot_bias": _dense(""),
    "subsample": _subsample,
    "conv_input_gradient": _grow,
    "conv_weight_gradient": _with_partner,
    "sum": _sum,
    "cross_entropy_with_gradient": _loss,
}  # fmt: skip
for _name in ("sigmoid", "tanh", "relu"):
    EMITTERS[f"conv_bias_{_name}"] = _conv(_name)
    EMITTERS[f"conv_bias_{_name}_gradient"] = _conv_gradient(_name)
    EMITTERS[f"dot_bias_{_name}"] = _dense(_name)
    EMITTERS[f"{_name}_bias_gradient"] = _dense_gradient(_name)
