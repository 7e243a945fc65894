"""Emitters: how each instruction of one image's program becomes lines of a generated loop."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pareo.backends.compiled.conv import register_tiles
from pareo.backends.compiled.loops import narrow_matvec, templates
from pareo.backends.compiled.loops.source import LoopSource, Unsupported
from pareo.program.ir import Instruction


def emit(s: LoopSource) -> None:
    """Add the lines of all instructions of the source's program."""
    for instruction in s.program.instructions:
        if instruction.is_view:
            _view(s, instruction)
            continue
        emitter = EMITTERS.get(instruction.name)
        if emitter is None:
            raise Unsupported(instruction.name)
        emitter(s, instruction)


def _view(s: LoopSource, i: Instruction) -> None:
    source, result = i.inputs[0], i.outputs[0]
    if i.name == "transpose":
        return  # the products that read it take its operand instead
    if i.name != "reshape":
        raise Unsupported(i.name)
    line = f"v{result} = v{source}.reshape({s.shape(result)})"
    # Only the memory of images changes during a run.
    target = s.lines if source in s.of_image else s.before
    target.append(line)
    s.collect(result)


def _elementwise(name: str) -> Callable[[LoopSource, Instruction], None]:
    def emitter(s: LoopSource, i: Instruction) -> None:
        _activate(s, name, i.outputs[0], *i.inputs)
        s.collect(i.outputs[0])

    return emitter


def _activate(s: LoopSource, name: str, out: int, first: int, *rest: int) -> None:
    """An elementwise loop, in place if the plan has put the result where the operand is."""
    in_place = out == first or s.offset(out) == s.offset(first)
    given = (first, *rest) if in_place else (out, first, *rest)
    arguments = ", ".join(s.flat(n) for n in given)
    s.add(f"elementwise_loops.{name}{'_in_place' if in_place else ''}({arguments})")


def _conv(activation: str) -> Callable[[LoopSource, Instruction], None]:
    def emitter(s: LoopSource, i: Instruction) -> None:
        (x, filters, bias), y = i.inputs, i.outputs[0]
        _check_plain(i.attributes)
        _, count, height, width = s.shape(y)
        _, _, kh, kw = s.shape(filters)
        wide = s.shape(x)[3]
        if not register_tiles.suits(s.shape(y), s.shape(filters)):
            raise Unsupported("conv")
        plane, image = height * width, s.at(x)
        s.add(f"for i in range({height}):")
        s.add(f"    for k in range(0, {count}, 3):")
        s.add(
            f"        register_tiles.forward_row({s.at(y)} + 4 * (k * {plane} + i * {width}), "
            f"{image} + 4 * i * {wide}, {s.at(filters)} + 4 * k * {kh * kw}, "
            f"{s.at(bias)} + 4 * k, {plane}, {width}, {wide}, {kh}, {kw})"
        )
        if activation:
            _activate(s, activation, y, y)

    return emitter


def _conv_gradient(activation: str) -> Callable[[LoopSource, Instruction], None]:
    def emitter(s: LoopSource, i: Instruction) -> None:
        (x, g, y), (gw, gb) = i.inputs, i.outputs
        _check_plain(i.attributes)
        if gw not in s.sums or gb not in s.sums:
            raise Unsupported("conv gradient that is used")
        _, count, height, width = s.shape(g)
        _, _, kh, kw = s.shape(gw)
        wide = s.shape(x)[3]
        plane, image = height * width, s.at(x)
        if gb not in s.written:
            _activate(s, f"{activation}_gradient", g, g, y)
            planes = s.once(f"v{g}.reshape(({count}, {plane}))")
            s.add(f"gradient_sums.add_planes({s.sums[gb]}, {planes})")
        s.add(f"for k in range(0, {count}, 3):")
        s.add(f"    for u in range({kh}):")
        s.add(
            f"        register_tiles.gradient_row({s.at_array(s.sums[gw])} + "
            f"4 * (k * {kh * kw} + u * {kw}), {image} + 4 * u * {wide}, "
            f"{s.at(g)} + 4 * k * {plane}, {height}, {width}, {wide}, {kh}, {kw})"
        )

    return emitter


def _check_plain(how: Mapping[str, Any]) -> None:
    one = (1, 1)
    if how["stride"] != one or how["dilation"] != one or any(how["padding"]) or how["groups"] != 1:
        raise Unsupported("conv with stride, padding, dilation or groups")


def _dot(s: LoopSource, i: Instruction) -> None:
    (a, b), out = i.inputs, i.outputs[0]
    left, right = s.transposed(a), s.transposed(b)
    rows, columns = s.shape(out)
    sizes = {"rows": rows, "columns": columns, "depth": s.shape(a)[1]}
    if left is not None and right is None and out in s.sums:
        if sizes["depth"] == 1 and columns <= narrow_matvec.MAX_COLUMNS:
            given = f"{s.at_array(s.sums[out])}, {s.at(left)}, {s.at(b)}"
            s.add(f"narrow_matvec.add_outer_row({given}, {rows}, {columns})")
            return
        name = s.function(templates.add_outer, **sizes)
        s.add(f"{name}({s.sums[out]}, v{left}, v{b})")
        return
    if left is not None:
        raise Unsupported("dot of a transpose")
    if right is not None and rows == 1 and sizes["depth"] <= narrow_matvec.MAX_COLUMNS:
        given = f"{s.at(out)}, {s.at(a)}, {s.at(right)}"
        s.add(f"narrow_matvec.dot_transposed_row({given}, {columns}, {sizes['depth']})")
    elif right is None:
        s.add(f"{s.function(templates.dot, **sizes)}(v{out}, v{a}, v{b})")
    else:
        name = s.function(templates.dot_transposed, **sizes)
        s.add(f"{name}(v{out}, v{a}, v{right})")
    s.collect(out)


def _dense(activation: str) -> Callable[[LoopSource, Instruction], None]:
    def emitter(s: LoopSource, i: Instruction) -> None:
        (x, matrix, bias), y = i.inputs, i.outputs[0]
        if s.transposed(x) is not None or s.transposed(matrix) is not None:
            raise Unsupported("dense layer of transposes")
        (rows, depth), columns = s.shape(x), s.shape(y)[1]
        if rows == 1 and columns <= narrow_matvec.MAX_COLUMNS:
            given = f"{s.at(y)}, {s.at(x)}, {s.at(matrix)}, {s.at(bias)}"
            s.add(f"narrow_matvec.dot_row({given}, {depth}, {columns})")
        else:
            name = s.function(templates.dot, rows=rows, columns=columns, depth=depth)
            s.add(f"{name}(v{y}, v{x}, v{matrix})")
            s.add(f"gradient_sums.add_rows(v{y}, v{y}, v{bias})")
        if activation:
            _activate(s, activation, y, y)

    return emitter


def _dense_gradient(activation: str) -> Callable[[LoopSource, Instruction], None]:
    def emitter(s: LoopSource, i: Instruction) -> None:
        (g, y), (d, sums) = i.inputs, i.outputs
        _activate(s, f"{activation}_gradient", d, g, y)
        # An image is one row, which is its own sum.
        total = s.sum_of(sums)
        if total is None:
            total = s.flat(sums)
            s.add(f"gradient_sums.clear({total})")
        s.add(f"gradient_sums.add_to({total}, {s.flat(d)})")
        s.collect(sums)

    return emitter


def _subsample(s: LoopSource, i: Instruction) -> None:
    (x, filters, bias), y = i.inputs, i.outputs[0]
    kh, kw = _window_size(s.shape(filters), i.attributes["stride"], s.shape(x))
    planes, height, width = s.shape(y)[1:]
    image = s.at(x)
    s.add(f"for i in range({planes * height}):")
    s.add(
        f"    window_rows.subsample_row({s.at(y)} + 4 * i * {width}, "
        f"{image} + 4 * i * {kh * kw * width}, {s.at(filters)}, {s.at(bias)}, "
        f"{width}, {kh}, {kw})"
    )


def _window_size(
    window: Sequence[int], stride: Sequence[int], image: Sequence[int]
) -> tuple[int, int]:
    kh, kw = window[-2:]
    if tuple(stride) != (kh, kw) or image[-2] % kh or image[-1] % kw:
        raise Unsupported("windows that overlap or do not cover the image")
    return kh, kw


def _subsample_gradient(s: LoopSource, i: Instruction) -> None:
    """The backward pass of subsampling, which is traced as the two gradients of a convolution.

    If a convolution's activation comes before it, the lines include its backward pass.
    """
    (g, filters), gx = i.inputs, i.outputs[0]
    other = s.neighbour(i, "conv_weight_gradient", g)
    if s.shape(filters)[:2] != (1, 1) or any(i.attributes["padding"]) or other is None:
        raise Unsupported("gradient of a convolution")
    x, gw = other.inputs[0], other.outputs[0]
    kh, kw = _window_size(s.shape(filters), i.attributes["stride"], s.shape(gx))
    planes, _, height, width = s.shape(g)
    total = s.sum_of(gw)
    if total is None:
        total = s.flat(gw)
        s.add(f"gradient_sums.clear({total})")
    layer, image = _layer_before(s, gx, x), s.at(x)
    bias = s.once(f"np.zeros(({planes}, {kw}), np.float32)")
    if layer:
        s.add(f"gradient_sums.clear({s.once(f'{bias}.reshape(-1)')})")
    s.add(f"for i in range({planes * height}):")
    s.add(
        f"    window_rows.subsample_gradient_row({s.at(gx)} + 4 * i * {kh * kw * width}, "
        f"{s.at_array(total)}, {s.at_array(bias)} + 4 * (i // {height}) * {kw}, "
        f"{image} + 4 * i * {kh * kw * width}, {s.at(g)} + 4 * i * {width}, {s.at(filters)}, "
        f"{width}, {kh}, {kw}, {layer.name.split('_')[2] if layer else ''!r})"
    )
    if layer:
        gb = layer.outputs[1]
        s.add(f"gradient_sums.add_planes({s.sums[gb]}, {bias})")
        s.written.add(gb)
    s.collect(gw)


def _layer_before(s: LoopSource, gx: int, x: int) -> Instruction | None:
    """The gradient of the convolution whose activation computed x, if only that reads gx."""
    readers = [
        i for i in s.program.instructions
        if i.name != "reshape" and any(s.root(n) == s.root(gx) for n in i.inputs)
    ]  # fmt: skip
    if len(readers) != 1 or not re.fullmatch(r"conv_bias_\w+_gradient", readers[0].name):
        return None
    _, g, y = readers[0].inputs
    fits = s.root(g) == s.root(gx) and s.root(y) == s.root(x)
    return readers[0] if fits and readers[0].outputs[1] in s.sums else None


def _with_neighbour(s: LoopSource, i: Instruction) -> None:
    """Nothing: the lines of the gradient of the images include it."""
    if s.neighbour(i, "conv_input_gradient", i.inputs[1]) is None:
        raise Unsupported("gradient of a convolution")


def _sum(s: LoopSource, i: Instruction) -> None:
    a, out = i.inputs[0], i.outputs[0]
    if s.spec(out).size not in (1, s.spec(a).size):
        raise Unsupported("sum")
    total = s.sum_of(out)
    if total is None:
        total = s.flat(out)
        s.add(f"gradient_sums.clear({total})")
    if s.spec(out).size == 1:
        s.add(
            f"gradient_sums.add_planes({total}, {s.once(f'v{a}.reshape((1, {s.spec(a).size}))')})"
        )
    else:
        s.add(f"gradient_sums.add_to({total}, {s.flat(a)})")
    s.collect(out)


def _loss(s: LoopSource, i: Instruction) -> None:
    (_, logits, labels), (out, d) = i.inputs, i.outputs
    s.add(f"{s.flat(out)}[0] = loss.cross_entropy_rows(v{d}, v{logits}, v{labels}, 1.0, True)")


EMITTERS: dict[str, Callable[[LoopSource, Instruction], None]] = {
    **{
        name: _elementwise(name)
        for name in ("sigmoid", "tanh", "relu", "sigmoid_gradient", "tanh_gradient",
                     "relu_gradient")
    },
    "conv_bias": _conv(""),
    "dot": _dot,
    "dot_bias": _dense(""),
    "subsample": _subsample,
    "conv_input_gradient": _subsample_gradient,
    "conv_weight_gradient": _with_neighbour,
    "sum": _sum,
    "cross_entropy_with_gradient": _loss,
}  # fmt: skip
for _name in ("sigmoid", "tanh", "relu"):
    EMITTERS[f"conv_bias_{_name}"] = _conv(_name)
    EMITTERS[f"conv_bias_{_name}_gradient"] = _conv_gradient(_name)
    EMITTERS[f"dot_bias_{_name}"] = _dense(_name)
    EMITTERS[f"{_name}_bias_gradient"] = _dense_gradient(_name)
