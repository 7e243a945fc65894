"""Writes the calls of a kernel that computes one image in each block."""

from collections.abc import Callable
from math import prod
from typing import Any

from pareo.backends.cuda.images import tiles
from pareo.backends.cuda.images.elements import expression, number, place
from pareo.backends.cuda.images.rows import ELEMENTWISE, VIEWS, Split, Unsupported
from pareo.backends.cuda.images.source import Source
from pareo.program.ir import Instruction


def emit(split: Split) -> Source:
    """The kernel of a training step.

    Raises:
        Unsupported: an instruction has shapes that it cannot compute.
    """
    source = Source(split)
    source.prepare()
    for position, one in enumerate(split.inside):
        if one.name in ELEMENTWISE:
            _elementwise(source, one, position)
        elif one.name in VIEWS:
            _view(source, one)
        else:
            EMITTERS[one.name](source, one, position)
        for made in one.outputs:
            if made in split.saved:
                count = split.size(made)
                source.add(f"EACH(i, {count}) s{made}[i] = ({source.read(made)})[i];")
                source.add("PHASE_END;", 60)
        source.release(position)
    return source


def _elementwise(source: Source, one: Instruction, position: int) -> None:
    (result,), split = one.outputs, source.split
    shape = split.dims(result)
    reads = []
    for which, operand in enumerate(one.inputs):
        dims = split.dims(operand)
        if one.name == "add_bias" and which == 1:
            dims = (*dims, *(1,) * (len(shape) - 2))
        at = place(dims, shape)
        if at is None or (operand not in split.rows and len(dims) == len(shape) and dims[0] > 1):
            raise Unsupported(f"{one.name} of other shapes")
        reads.append(f"{'ab'[which]} = ({source.read(operand)})[{at}]")
    same = tuple(n for n in one.inputs if n in split.rows and split.dims(n) == shape)
    out = source.make(result, position, same)
    count = prod(shape)
    source.add(
        f"EACH(i, {count}) {{ const float {', '.join(reads)}; "
        f"({out})[i] = {expression(one.name, one.attributes)}; }} PHASE_END;",
        tiles.cycles(count, 20),
    )


def _view(source: Source, one: Instruction) -> None:
    offset = 0
    if one.name == "part":
        dims = source.split.dims(one.inputs[0])
        offset = one.attributes["between"][0] * prod(dims[2:])
    source.view(one.outputs[0], one.inputs[0], offset)


def _shape(source: Source, images: int, output: int, window: Any, how: Any) -> tuple[Any, ...]:
    m, c, h, w = source.split.dims(images)
    m_out, f, oh, ow = source.split.dims(output)
    if m != m_out:
        raise Unsupported("conv of other shapes")
    return (
        m, c, h, w, f, oh, ow, *window, *how["stride"], *how["padding"][:2], *how["dilation"],
        how["groups"],
    )  # fmt: skip


def _named(kind: str, sizes: tuple[Any, ...]) -> str:
    return f"{kind}<{', '.join(map(str, sizes))}>"


def _conv(source: Source, one: Instruction, position: int) -> None:
    x, w = one.inputs
    how = one.attributes
    sizes = _shape(source, x, one.outputs[0], source.split.program.specs[w].shape[2:], how)
    m, c, h, _, f, oh, ow, kh, kw = sizes[:9]
    groups = how["groups"]
    given, name = source.read(x), _named("Conv", sizes)
    out = source.make(one.outputs[0], position)
    with source.staged(w) as (weights, latency):
        filters, pixels, cut, cycles = tiles.conv_tile(
            m, groups, oh, ow, c // groups, f // groups, (min(kh, h), kw), how["stride"][1],
            how["dilation"][1], latency,
        )  # fmt: skip
        source.room(source.split.size(one.outputs[0]), cut)
        called = f"conv<{name}, {filters}, {pixels}, {cut}>"
        source.add(f"{called}({out}, {given}, {weights}, room);", cycles)


def _conv_back(source: Source, one: Instruction, position: int) -> None:
    g, w = one.inputs
    how = one.attributes
    sizes = _shape(source, one.outputs[0], g, source.split.program.specs[w].shape[2:], how)
    m, c, h, width, f, oh, _, kh, kw = sizes[:9]
    groups = how["groups"]
    given, name = source.read(g), _named("Conv", sizes)
    out = source.make(one.outputs[0], position)
    with source.staged(w) as (weights, latency):
        filters, pixels, cut, cycles = tiles.conv_tile(
            m, groups, h, width, f // groups, c // groups, (min(kh, oh), kw), 1,
            how["dilation"][1], latency,
        )  # fmt: skip
        source.room(source.split.size(one.outputs[0]), cut)
        called = f"conv_back<{name}, {filters}, {pixels}, {cut}>"
        source.add(f"{called}({out}, {given}, {weights}, room);", cycles)


def _filters_back(source: Source, one: Instruction, position: int) -> None:
    x, g = one.inputs
    how = one.attributes
    sizes = _shape(source, x, g, how["size"], how)
    m, c, _, _, f, oh, ow, kh, kw = sizes[:9]
    count = f * (c // how["groups"]) * kh
    cut = source.room(count * kw, tiles.parts(count, oh))
    span = 3 * how["stride"][1] + (kw - 1) * how["dilation"][1] + 1
    each = m * -(-oh // cut) * (8 + -(-ow // 4) * (4 * 2 + 3 * span + 4 * kw)) + 30
    name, given = _named("Conv", sizes), f"{source.read(x)}, {source.read(g)}"
    source.add(
        f"conv_filters_back<{name}, {cut}>({source.total(one.outputs[0])}, {given}, room);",
        tiles.cycles(count * cut, each, m * -(-oh // cut) * -(-ow // 4)),
    )


def _rows_of(source: Source, one: Instruction) -> tuple[int, int]:
    """The rows and their length, of a reduction over the last axes."""
    dims, axes = source.split.dims(one.inputs[0]), one.attributes["axis"]
    kept = [i for i in range(len(dims)) if i not in axes and dims[i] > 1]
    gone = [i for i in range(len(dims)) if i in axes and dims[i] > 1]
    if kept and gone and max(kept) > min(gone):
        raise Unsupported(f"{one.name} over axes {axes}")
    return prod(dims[i] for i in kept), prod(dims[i] for i in gone)


def _reduce(source: Source, one: Instruction, position: int) -> None:
    rows, row = _rows_of(source, one)
    result, given = one.outputs[0], source.read(one.inputs[0])
    scale = 1 / row if one.name == "mean" else 1.0
    total = result not in source.split.rows
    out = source.total(result) if total else source.make(result, position)
    share = 1 if row < 64 else 32  # threads of a row, as in rows.cuh
    terms = -(-row // share)
    source.add(
        f"row_sums<{rows}, {row}>({out}, {given}, {number(scale)});",
        tiles.cycles(rows * share, 6 * terms + 40, terms / 8 + 5),
    )


def _dense(source: Source, one: Instruction, position: int) -> None:
    x, w = one.inputs
    back = source.split.transposed.get(w)
    (k,), (m,) = source.split.dims(x)[1:], source.split.dims(one.outputs[0])[1:]
    given = source.read(x)
    out = source.make(one.outputs[0], position)
    if back is not None:
        source.add(
            f"dense_back<{m}, {k}>({out}, {given}, {source.read(back)});",
            tiles.cycles(8 * m, 20 * -(-k // 32) + 60, -(-k // 128), tiles.L2),
        )
        return
    cut = source.room(m, tiles.parts(m, k))
    source.add(
        f"dense<{k}, {m}, {cut}>({out}, {given}, {source.read(w)}, room);",
        tiles.cycles(m * cut, 5 * -(-k // cut), -(-k // cut // 16), tiles.L2),
    )


def _pool_shape(source: Source, images: int, output: int, window: Any, how: Any) -> str:
    m, c, h, w = source.split.dims(images)
    _, _, oh, ow = source.split.dims(output)
    return _named("Pool", (m * c, h, w, oh, ow, *window, *how["stride"], *how["padding"][:2]))


def _pool(source: Source, one: Instruction, position: int) -> None:
    back = one.name.endswith("_gradient")
    images, output = (one.outputs[0], one.inputs[0]) if back else (one.inputs[0], one.outputs[0])
    how = {"padding": (0, 0), **one.attributes}
    if one.name == "subsample":
        window = source.split.program.specs[one.inputs[1]].shape
    else:
        window = how["size"]
    given = ", ".join(map(source.read, one.inputs))
    out = source.make(one.outputs[0], position)
    name = _pool_shape(source, images, output, window, how)
    count = source.split.size(one.outputs[0])
    area = prod(window)
    overlap = any(step < size for step, size in zip(how["stride"], window, strict=True))
    scans = area if one.name == "max_pool_gradient" and overlap else 1
    each = 60 + 8 * area * scans
    function = one.name.replace("_gradient", "_back")
    source.add(f"{function}<{name}>({out}, {given});", tiles.cycles(count, each))


def _concat(source: Source, one: Instruction, position: int) -> None:
    given = [(source.read(n), source.split.size(n)) for n in one.inputs]
    out = source.make(one.outputs[0], position)
    start = 0
    for pointer, count in given:
        source.add(f"EACH(i, {count}) ({out})[{start} + i] = ({pointer})[i];", 60)
        start += count
    source.add("PHASE_END;")


def _channels(source: Source, number_: int) -> tuple[int, int]:
    dims = source.split.dims(number_)
    return dims[1], prod(dims[2:])


def _norm_moments(source: Source, one: Instruction, position: int) -> None:
    given = source.read(one.inputs[0])
    channels, pixels = _channels(source, one.inputs[0])
    source.moments.append((one, source.width))
    out = f"parts + {source.width}"
    source.width += 2 * channels
    share = 1 if pixels < 64 else 32
    terms = -(-pixels // share)
    source.add(
        f"norm_moments<{channels}, {pixels}>({out}, {given});",
        tiles.cycles(channels * share, 12 * terms + 80, terms + 10),
    )


def _norm_rows(source: Source, one: Instruction, position: int) -> None:
    x, scale, shift, mean, variance = map(source.read, one.inputs)
    _, pixels = _channels(source, one.inputs[0])
    count, out = source.split.size(one.outputs[0]), source.make(one.outputs[0], position)
    epsilon = number(one.attributes["epsilon"])
    source.add(
        f"EACH(i, {count}) {{ const int c = i / {pixels}; ({out})[i] = (({x})[i] - ({mean})[c]) * "
        f"(({scale})[c] / sqrtf(({variance})[c] + {epsilon})) + ({shift})[c]; }} PHASE_END;",
        tiles.cycles(count, 40, 1, tiles.L2),
    )


def _norm_sums(source: Source, one: Instruction, position: int) -> None:
    g, x, mean, variance = map(source.read, one.inputs)
    channels, pixels = _channels(source, one.inputs[0])
    to_scale, to_shift = map(source.total, one.outputs)
    share = 1 if pixels < 64 else 32
    terms = -(-pixels // share)
    source.add(
        f"norm_sums<{channels}, {pixels}>({to_scale}, {to_shift}, {g}, {x}, {mean}, {variance}, "
        f"{number(one.attributes['epsilon'])});",
        tiles.cycles(channels * share, 12 * terms + 80, terms + 10),
    )


def _norm_rows_back(source: Source, one: Instruction, position: int) -> None:
    g, x, scale, mean, variance, to_scale, to_shift = map(source.read, one.inputs)
    _, pixels = _channels(source, one.inputs[0])
    elements = number(pixels * source.split.batch)
    count, out = source.split.size(one.outputs[0]), source.make(one.outputs[0], position)
    epsilon = number(one.attributes["epsilon"])
    source.add(
        f"EACH(i, {count}) {{ const int c = i / {pixels}; "
        f"const float inverse = 1 / sqrtf(({variance})[c] + {epsilon}); "
        f"const float z = (({x})[i] - ({mean})[c]) * inverse; "
        f"const float lost = (({to_shift})[c] + z * ({to_scale})[c]) / {elements}; "
        f"({out})[i] = ({scale})[c] * inverse * (({g})[i] - lost); }} PHASE_END;",
        tiles.cycles(count, 60, 1, tiles.L2),
    )


def _loss(source: Source, one: Instruction, position: int) -> None:
    logits, labels = one.inputs
    classes, share = source.split.dims(logits)[-1], number(1 / source.split.batch)
    given, label = source.read(logits), f"*({source.read(labels)})"
    out = source.total(one.outputs[0])
    source.add(f"cross_entropy<{classes}>({out}, {given}, {label}, {share});", 1000)


def _loss_back(source: Source, one: Instruction, position: int) -> None:
    g, logits, labels = one.inputs
    classes = source.split.dims(logits)[-1]
    scale = f"*({source.read(g)}) / {source.split.batch}"
    given, label = source.read(logits), f"*({source.read(labels)})"
    out = source.make(one.outputs[0], position)
    source.add(f"cross_entropy_back<{classes}>({out}, {given}, {label}, {scale});", 1000)


EMITTERS: dict[str, Callable[[Source, Instruction, int], None]] = {
    "conv": _conv,
    "conv_input_gradient": _conv_back,
    "conv_weight_gradient": _filters_back,
    "sum": _reduce,
    "mean": _reduce,
    "dot": _dense,
    "max_pool": _pool,
    "max_pool_gradient": _pool,
    "average_pool": _pool,
    "average_pool_gradient": _pool,
    "subsample": _pool,
    "concat": _concat,
    "norm_moments": _norm_moments,
    "norm_rows": _norm_rows,
    "norm_sums": _norm_sums,
    "norm_rows_gradient": _norm_rows_back,
    "cross_entropy": _loss,
    "cross_entropy_gradient": _loss_back,
}
