"""Pooling of a group of images that lie side by side, written as LLVM instructions.

Values are laid out as in `conv`. Places with the same taps share their code, so that the
edges need no conditions. All sizes are literals. float32 only.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from pareo.backends.compiled.loops.groups.kernels import tiles
from pareo.backends.compiled.loops.groups.kernels.tiles import Cell, cells, each_tile
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

# body(place, first pixel, offsets of all pixels, registers, the run of columns)
_Body = Callable[[ir.Value, ir.Value, list[int], list[Cell], Run], None]


def _each_window(
    code: GroupBuilder,
    addresses: Sequence[ir.Value],
    planes: int,
    wide: tuple[int, int],
    taps: tuple[list[Taps], list[Taps]],
    sources: int,
    body: _Body,
) -> None:
    """body for every tile of places.

    `wide` are the widths of the result and of the source, `sources` the rows of the source.
    """
    target, source = addresses
    rows, columns = taps
    lanes = code.images
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
                    i: ir.Value, line: ir.Value, run: Run = across, at: list[int] = offsets
                ) -> None:
                    row = code.at(to, (i, wide[0] * lanes))
                    source_row = code.at(of, (line, wide[1] * lanes))

                    def on_tile(j: ir.Value, pixel: ir.Value, pixels: int) -> None:
                        places = code.at(row, (j, lanes)), code.at(source_row, (pixel, lanes))
                        body(*places, at, cells(lanes, pixels), run)

                    each_tile(code, run, min(run.count, code.lanes if lanes == 1 else 1), on_tile)

                each_place(code, down, on_row)


def _forward_windows(
    code: GroupBuilder, addresses: Sequence[ir.Value], sizes: Sequence[int], body: _Body
) -> None:
    """body for every window of an image."""
    _, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left = sizes[:12]
    taps = (
        forward_taps(out_high, high, kh, sh, top, 1),
        forward_taps(out_wide, wide, kw, sw, left, 1),
    )
    _each_window(code, addresses, planes, (out_wide, wide), taps, high, body)


def _backward_windows(
    code: GroupBuilder, addresses: Sequence[ir.Value], sizes: Sequence[int], body: _Body
) -> None:
    """body for every pixel of an image, with the windows that cover it."""
    _, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left = sizes
    taps = (
        backward_taps(out_high, high, kh, sh, top, 1),
        backward_taps(out_wide, wide, kw, sw, left, 1),
    )
    _each_window(code, addresses, planes, (wide, out_wide), taps, out_high, body)


def _sums(code: GroupBuilder, share: Callable[[int], float]) -> _Body:
    """A body that stores the sum of all pixels, times a share that depends on their number."""

    def body(
        to: ir.Value, of: ir.Value, offsets: list[int], registers: list[Cell], run: Run
    ) -> None:
        factor = code.constant(share(len(offsets)))
        for cell in registers:
            values = [tiles.load(code, of, offset, cell, run.move) for offset in offsets]
            total = code.multiply(code.total(values), factor)
            tiles.store(code, total, to, 0, cell, run.step)

    return body


def _generator(name: str, sizes: Sequence[int], count: int, emit: Callable[..., None]) -> Any:
    """A generator of a kernel with `count` addresses."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return as_function(context, builder, name, sizes, arguments[:count], emit)

    return generate


@intrinsic(prefer_literal=True)
def average(  # type: ignore[no-untyped-def]
    typingctx, y, x, lanes, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left,
):  # fmt: skip
    """y = the mean of each window of x, without padding."""
    kinds = lanes, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left
    sizes = literals(*kinds)

    def emit(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> None:
        code = GroupBuilder(builder, sizes[0])
        _forward_windows(code, arguments, sizes, _sums(code, lambda taps: 1 / taps))

    return types.void(y, x, *kinds), _generator("pool_average", sizes, 2, emit)


@intrinsic(prefer_literal=True)
def average_gradient(  # type: ignore[no-untyped-def]
    typingctx, d, g, lanes, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left,
):  # fmt: skip
    """d = the gradient of the means of windows, as if all lay inside the image."""
    kinds = lanes, planes, high, wide, out_high, out_wide, kh, kw, sh, sw, top, left
    sizes = literals(*kinds)

    def emit(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> None:
        code, (kh, kw) = GroupBuilder(builder, sizes[0]), sizes[6:8]
        _backward_windows(code, arguments, sizes, _sums(code, lambda _: 1 / (kh * kw)))

    return types.void(d, g, *kinds), _generator("pool_average_gradient", sizes, 2, emit)


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
        code = GroupBuilder(builder, sizes[0])

        def body(
            to: ir.Value, of: ir.Value, offsets: list[int], registers: list[Cell], run: Run
        ) -> None:
            for cell in registers:
                values = [tiles.load(code, of, offset, cell, run.move) for offset in offsets]
                tiles.store(code, _maximum(code, values), to, 0, cell, run.step)

        _forward_windows(code, arguments, sizes, body)

    return types.void(y, x, *kinds), _generator("pool_maximum", sizes, 2, emit)


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
        overlap = sizes[12]
        d, g, x = arguments
        code = GroupBuilder(builder, sizes[0])
        between = builder.sub(d, x)  # d has the layout of x

        def body(
            to: ir.Value, of: ir.Value, offsets: list[int], registers: list[Cell], run: Run
        ) -> None:
            out = builder.add(of, between)
            for cell in registers:
                values = [tiles.load(code, of, offset, cell, run.move) for offset in offsets]
                largest, error = _maximum(code, values), tiles.load(code, to, 0, cell, run.step)
                taken = None
                for offset, value in zip(offsets, values, strict=True):
                    here = builder.fcmp_unordered("==", value, largest)
                    if taken is not None:
                        here = builder.and_(here, builder.not_(taken))
                    taken = here if taken is None else builder.or_(taken, here)
                    share = builder.select(here, error, code.constant(0.0))
                    if overlap:
                        share = code.add(share, tiles.load(code, out, offset, cell, run.move))
                    tiles.store(code, share, out, offset, cell, run.move)

        _forward_windows(code, (g, x), sizes, body)

    return types.void(d, g, x, *kinds), _generator("pool_maximum_gradient", sizes, 3, emit)
