"""Pooling of a group of images that lie side by side, written as LLVM instructions.

Values are laid out as in `conv`. Places with the same taps share their code, so that the
edges need no conditions. All sizes are literals. float32 only.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from pareo.backends.compiled.conv.register_tiles import LANES as REGISTER
from pareo.backends.compiled.loops.groups.kernels.vectors import (
    GroupBuilder,
    as_function,
    each_place,
)
from pareo.backends.compiled.loops.groups.kernels.window_runs import (
    Run,
    Taps,
    backward_taps,
    forward_taps,
    runs,
)
from pareo.backends.compiled.runtime.llvm_vectors import literals

_Body = Callable[[ir.Value, ir.Value, list[int]], None]


def _each_window(
    code: GroupBuilder,
    addresses: tuple[ir.Value, ir.Value],
    planes: int,
    wide: tuple[int, int],
    lanes: int,
    taps: tuple[list[Taps], list[Taps]],
    sources: int,
    body: _Body,
) -> None:
    """body(place, first pixel, offsets of all pixels) for every place.

    `wide` are the widths of the result and of the source, `sources` the rows of the source.
    """
    target, source = addresses
    rows, columns = taps
    with code.loop(planes) as plane:
        to = code.at(target, (plane.index, len(rows) * wide[0] * lanes))
        of = code.at(source, (plane.index, sources * wide[1] * lanes))
        for down in runs(rows):
            for across in runs(columns):
                offsets = [
                    (down_by * wide[1] + across_by) * lanes
                    for down_by in down.offsets
                    for across_by in across.offsets
                ]

                def on_row(
                    i: ir.Value, line: ir.Value, across: Run = across, at: list[int] = offsets
                ) -> None:
                    row = code.at(to, (i, wide[0] * lanes))
                    source_row = code.at(of, (line, wide[1] * lanes))
                    each_place(
                        code,
                        across,
                        lambda j, pixel: body(
                            code.at(row, (j, lanes)), code.at(source_row, (pixel, lanes)), at
                        ),
                    )

                each_place(code, down, on_row)


@intrinsic(prefer_literal=True)
def average(  # type: ignore[no-untyped-def]
    typingctx, y, x, lanes, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left,
):  # fmt: skip
    """y = the mean of each window of x, without padding."""
    kinds = lanes, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left
    sizes = literals(*kinds)

    def emit(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> None:
        lanes, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left = sizes
        code = GroupBuilder(builder, lanes)

        def body(to: ir.Value, of: ir.Value, offsets: list[int]) -> None:
            share = code.constant(1 / len(offsets))
            for q in code.parts:
                total = code.load(of, offsets[0] + REGISTER * q)
                for offset in offsets[1:]:
                    total = code.add(total, code.load(of, offset + REGISTER * q))
                code.store(code.multiply(total, share), to, REGISTER * q)

        taps = (
            forward_taps(out_high, high, kh, sh, top, 1),
            forward_taps(out_wide, wide, kw, sw, left, 1),
        )
        _each_window(
            code, (arguments[0], arguments[1]), planes, (out_wide, wide), lanes, taps, high, body
        )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return as_function(context, builder, "pool_average", sizes, arguments[:2], emit)

    return types.void(y, x, *kinds), generate


@intrinsic(prefer_literal=True)
def average_gradient(  # type: ignore[no-untyped-def]
    typingctx, d, g, lanes, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left,
):  # fmt: skip
    """d = the gradient of the means of windows, all of which lie inside the image."""
    kinds = lanes, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left
    sizes = literals(*kinds)

    def emit(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> None:
        lanes, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left = sizes
        code = GroupBuilder(builder, lanes)
        share = code.constant(1 / (kh * kw))

        def body(to: ir.Value, of: ir.Value, offsets: list[int]) -> None:
            for q in code.parts:
                total = code.constant(0.0)
                for number, offset in enumerate(offsets):
                    more = code.load(of, offset + REGISTER * q)
                    total = code.add(total, more) if number else more
                code.store(code.multiply(total, share), to, REGISTER * q)

        taps = (
            backward_taps(out_high, high, kh, sh, top, 1),
            backward_taps(out_wide, wide, kw, sw, left, 1),
        )
        _each_window(
            code,
            (arguments[0], arguments[1]),
            planes,
            (wide, out_wide),
            lanes,
            taps,
            out_high,
            body,
        )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return as_function(context, builder, "pool_average_gradient", sizes, arguments[:2], emit)

    return types.void(d, g, *kinds), generate


def _maximum(code: GroupBuilder, values: list[ir.Value]) -> ir.Value:
    """The largest of vectors; NaN where there is a NaN."""
    name, module = f"llvm.maximum.v{code.lanes}f32", code.builder.module
    kind = ir.FunctionType(code.kind, [code.kind] * 2)
    function = module.globals.get(name) or ir.Function(module, kind, name)
    top = values[0]
    for value in values[1:]:
        top = code.builder.call(function, [top, value])
    return top


@intrinsic(prefer_literal=True)
def maximum(  # type: ignore[no-untyped-def]
    typingctx, y, x, lanes, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left,
):  # fmt: skip
    """y = the largest element of each window of x."""
    kinds = lanes, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left
    sizes = literals(*kinds)

    def emit(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> None:
        lanes, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left = sizes
        code = GroupBuilder(builder, lanes)

        def body(to: ir.Value, of: ir.Value, offsets: list[int]) -> None:
            for q in code.parts:
                values = [code.load(of, offset + REGISTER * q) for offset in offsets]
                code.store(_maximum(code, values), to, REGISTER * q)

        taps = (
            forward_taps(out_high, high, kh, sh, top, 1),
            forward_taps(out_wide, wide, kw, sw, left, 1),
        )
        _each_window(
            code, (arguments[0], arguments[1]), planes, (out_wide, wide), lanes, taps, high, body
        )

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return as_function(context, builder, "pool_maximum", sizes, arguments[:2], emit)

    return types.void(y, x, *kinds), generate


@intrinsic(prefer_literal=True)
def maximum_gradient(  # type: ignore[no-untyped-def]
    typingctx, d, g, x, lanes, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top,
    left, overlap,
):  # fmt: skip
    """Each g goes to the first largest element of its window of x.

    It is written to d, or added if windows overlap. d must be 0 outside of windows, or everywhere
    if they overlap.
    """
    kinds = lanes, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left, overlap
    sizes = literals(*kinds)

    def emit(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> None:
        lanes, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left, overlap = sizes
        d, g, x = arguments
        code = GroupBuilder(builder, lanes)
        between = builder.sub(d, x)  # d has the layout of x

        def body(to: ir.Value, of: ir.Value, offsets: list[int]) -> None:
            out = builder.add(of, between)
            for q in code.parts:
                values = [code.load(of, offset + REGISTER * q) for offset in offsets]
                largest, error = _maximum(code, values), code.load(to, REGISTER * q)
                taken = None
                for offset, value in zip(offsets, values, strict=True):
                    here = builder.fcmp_unordered("==", value, largest)
                    if taken is not None:
                        here = builder.and_(here, builder.not_(taken))
                    taken = here if taken is None else builder.or_(taken, here)
                    share = builder.select(here, error, code.constant(0.0))
                    if overlap:
                        share = code.add(share, code.load(out, offset + REGISTER * q))
                    code.store(share, out, offset + REGISTER * q)

        taps = (
            forward_taps(out_high, high, kh, sh, top, 1),
            forward_taps(out_wide, wide, kw, sw, left, 1),
        )
        _each_window(code, (g, x), planes, (out_wide, wide), lanes, taps, high, body)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return as_function(context, builder, "pool_maximum_gradient", sizes, arguments[:3], emit)

    return types.void(d, g, x, *kinds), generate
