"""How each instruction of one image's program is written down as lines of a generated loop."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from pareo.backends.compiled.conv import register_tiles
from pareo.backends.compiled.kernels import narrow_matvec
from pareo.backends.compiled.loops import templates
from pareo.backends.compiled.loops.source import Unsuited, Writer


def write(w: Writer) -> None:
    """Write down all instructions of the writer's program."""
    for instruction in w.program.instructions:
        if instruction.is_view:
            _view(w, instruction)
            continue
        emit = EMITTERS.get(instruction.name)
        if emit is None:
            raise Unsuited(instruction.name)
        emit(w, instruction)


def _view(w: Writer, i: Any) -> None:
    source, result = i.inputs[0], i.outputs[0]
    if i.name == "transpose":
        return  # the products that read it know how
    if i.name != "reshape":
        raise Unsuited(i.name)
    line = f"v{result} = v{source}.reshape({w.shape(result)})"
    # What is not part of an image lies where it lies for the whole run.
    target = w.lines if source in w.of_image else w.before
    target.append(line)
    w.collect(result)


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
        if not register_tiles.suits(w.shape(y), w.shape(filters)):
            raise Unsuited("conv")
        plane, image = height * width, w.at(x)
        w.add(f"for i in range({height}):")
        w.add(f"    for k in range(0, {count}, 3):")
        w.add(
            f"        tiles.forward_row({w.at(y)} + 4 * (k * {plane} + i * {width}), "
            f"{image} + 4 * i * {wide}, {w.at(filters)} + 4 * k * {kh * kw}, "
            f"{w.at(bias)} + 4 * k, {plane}, {width}, {wide}, {kh}, {kw})"
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
        plane, image = height * width, w.at(x)
        if gb not in w.written:
            _activate(w, f"{activation}_gradient", g, g, y)
            planes = w.once(f"v{g}.reshape(({count}, {plane}))")
            w.add(f"parts.add_planes({w.sums[gb]}, {planes})")
        w.add(f"for k in range(0, {count}, 3):")
        w.add(f"    for u in range({kh}):")
        w.add(
            f"        tiles.gradient_row({w.at_array(w.sums[gw])} + 4 * (k * {kh * kw} + u * {kw}),"
            f" {image} + 4 * u * {wide}, {w.at(g)} + 4 * k * {plane}, "
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
        if sizes["depth"] == 1 and columns <= narrow_matvec.WIDEST:
            given = f"{w.at_array(w.sums[out])}, {w.at(left)}, {w.at(b)}"
            w.add(f"narrow.add_outer_row({given}, {rows}, {columns})")
            return
        name = w.function(templates.add_outer, **sizes)
        w.add(f"{name}({w.sums[out]}, v{left}, v{b})")
        return
    if left is not None:
        raise Unsuited("dot of a transpose")
    if right is not None and rows == 1 and sizes["depth"] <= narrow_matvec.WIDEST:
        given = f"{w.at(out)}, {w.at(a)}, {w.at(right)}"
        w.add(f"narrow.dot_turned_row({given}, {columns}, {sizes['depth']})")
    elif right is None:
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
        if rows == 1 and columns <= narrow_matvec.WIDEST:
            given = f"{w.at(y)}, {w.at(x)}, {w.at(matrix)}, {w.at(bias)}"
            w.add(f"narrow.dot_row({given}, {depth}, {columns})")
        else:
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
        total = w.sum_of(sums)
        if total is None:
            total = w.flat(sums)
            w.add(f"parts.clear({total})")
        w.add(f"parts.add_to({total}, {w.flat(d)})")
        w.collect(sums)

    return emit


def _subsample(w: Writer, i: Any) -> None:
    (x, filters, bias), y = i.inputs, i.outputs[0]
    kh, kw = _windows(w.shape(filters), i.attributes["stride"], w.shape(x))
    planes, height, width = w.shape(y)[1:]
    image = w.at(x)
    w.add(f"for i in range({planes * height}):")
    w.add(
        f"    windows.shrink_row({w.at(y)} + 4 * i * {width}, "
        f"{image} + 4 * i * {kh * kw * width}, {w.at(filters)}, {w.at(bias)}, "
        f"{width}, {kh}, {kw})"
    )


def _windows(window: Sequence[int], stride: Sequence[int], image: Sequence[int]) -> Any:
    kh, kw = window[-2:]
    if tuple(stride) != (kh, kw) or image[-2] % kh or image[-1] % kw:
        raise Unsuited("windows that overlap or leave a rest")
    return kh, kw


def _grow(w: Writer, i: Any) -> None:
    """Back through subsampling, as the two gradients of a convolution that it is traced as.

    And on through the activation before it, where that is a convolution's.
    """
    (g, filters), gx = i.inputs, i.outputs[0]
    other = w.partner(i, "conv_weight_gradient", g)
    if w.shape(filters)[:2] != (1, 1) or any(i.attributes["padding"]) or other is None:
        raise Unsuited("gradient of a convolution")
    x, gw = other.inputs[0], other.outputs[0]
    kh, kw = _windows(w.shape(filters), i.attributes["stride"], w.shape(gx))
    planes, _, height, width = w.shape(g)
    total = w.sum_of(gw)
    if total is None:
        total = w.flat(gw)
        w.add(f"parts.clear({total})")
    layer, image = _layer_before(w, gx, x), w.at(x)
    bias = w.once(f"np.zeros(({planes}, {kw}), np.float32)")
    if layer:
        w.add(f"parts.clear({w.once(f'{bias}.reshape(-1)')})")
    w.add(f"for i in range({planes * height}):")
    w.add(
        f"    windows.grow_row({w.at(gx)} + 4 * i * {kh * kw * width}, {w.at_array(total)}, "
        f"{w.at_array(bias)} + 4 * (i // {height}) * {kw}, {image} + 4 * i * {kh * kw * width}, "
        f"{w.at(g)} + 4 * i * {width}, {w.at(filters)}, "
        f"{width}, {kh}, {kw}, {layer.name.split('_')[2] if layer else ''!r})"
    )
    if layer:
        gb = layer.outputs[1]
        w.add(f"parts.add_planes({w.sums[gb]}, {bias})")
        w.written.add(gb)
    w.collect(gw)


def _layer_before(w: Writer, gx: int, x: int) -> Any:
    """The gradient of a convolution whose activation gave x, if gx goes there and nowhere else."""
    readers = [
        i for i in w.program.instructions
        if i.name != "reshape" and any(w.root(n) == w.root(gx) for n in i.inputs)
    ]  # fmt: skip
    if len(readers) != 1 or not re.fullmatch(r"conv_bias_\w+_gradient", readers[0].name):
        return None
    _, g, y = readers[0].inputs
    fits = w.root(g) == w.root(gx) and w.root(y) == w.root(x)
    return readers[0] if fits and readers[0].outputs[1] in w.sums else None


def _with_partner(w: Writer, i: Any) -> None:
    """Written already, together with the gradient of the images."""
    if w.partner(i, "conv_input_gradient", i.inputs[1]) is None:
        raise Unsuited("gradient of a convolution")


def _sum(w: Writer, i: Any) -> None:
    a, out = i.inputs[0], i.outputs[0]
    if w.spec(out).size not in (1, w.spec(a).size):
        raise Unsuited("sum")
    total = w.sum_of(out)
    if total is None:
        total = w.flat(out)
        w.add(f"parts.clear({total})")
    if w.spec(out).size == 1:
        w.add(f"parts.add_planes({total}, {w.once(f'v{a}.reshape((1, {w.spec(a).size}))')})")
    else:
        w.add(f"parts.add_to({total}, {w.flat(a)})")
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
