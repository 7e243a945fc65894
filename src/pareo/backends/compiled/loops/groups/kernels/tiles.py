"""Tiles of pixels: the floats of some neighbouring columns of a row, in registers.

A pixel has a float for each image of a group. For groups of several registers a tile has some
pixels; for a group of one image each register has several pixels. What is left at the end of a row
makes a smaller tile.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from pareo.backends.compiled.loops.groups.kernels.vectors import (
    I64,
    GroupBuilder,
    parts_of,
    width_of,
)
from pareo.backends.compiled.loops.groups.kernels.window_runs import Run
from pareo.backends.compiled.runtime import registers
from pareo.backends.compiled.runtime.llvm_vectors import VectorBuilder

# Registers for sums; the others hold operands.
SUMS = 24 if registers.COUNT == 32 else 10
# Sums of a tile of pixels. Arm needs some that are independent of each other, so that none waits
# for the one before; on x86-64 more of them use each weight, which is loaded alone, more often.
CHAINS = SUMS if registers.IS_X86 else 12


@dataclass(frozen=True)
class Cell:
    """What one register holds: `count` pixels from `pixel` on, or part of the images of one."""

    pixel: int
    part: int
    count: int


def cells(lanes: int, pixels: int) -> list[Cell]:
    """The registers of some pixels."""
    if lanes == 1:
        width = width_of(lanes)
        starts = range(0, pixels, width)
        return [Cell(start, 0, min(width, pixels - start)) for start in starts]
    return [Cell(pixel, q, 1) for pixel in range(pixels) for q in range(parts_of(lanes))]


def pixels_of(lanes: int, sums: int, run: Run) -> int:
    """How many pixels of a run a tile has, if each of its registers is added to so many sums."""
    if lanes == 1:
        wanted = width_of(lanes) * max(2, CHAINS // sums)
    else:
        wanted = max(1, CHAINS // (parts_of(lanes) * sums))
    return min(wanted, run.count)


def each_tile(
    code: GroupBuilder, run: Run, pixels: int, body: Callable[[ir.Value, ir.Value, int], None]
) -> None:
    """body(place, source, pixels) for each tile of a run, with its first place and pixel."""
    build = code.builder

    def at(index: ir.Value, step: int, start: int) -> ir.Value:
        return build.add(build.mul(index, I64(pixels * step)), I64(start))

    whole, rest = divmod(run.count, pixels)
    if whole == 1:
        body(I64(run.start), I64(run.first), pixels)
    elif whole:
        with code.loop(whole) as loop:
            body(at(loop.index, run.step, run.start), at(loop.index, run.move, run.first), pixels)
    if rest:
        done = whole * pixels
        body(I64(run.start + done * run.step), I64(run.first + done * run.move), rest)


def load(code: GroupBuilder, address: ir.Value, offset: int, cell: Cell, step: int) -> ir.Value:
    """A cell of a tile whose pixels are `step` apart, `offset` floats after an address."""
    if len(code.parts):
        return code.load(address, offset + cell.pixel * step * code.images + code.lanes * cell.part)
    if step == 1:
        if cell.count == code.lanes:
            return code.load(address, offset + cell.pixel)
        few = VectorBuilder(code.builder, cell.count)
        value = few.load(address, offset + cell.pixel)
        where = [min(lane, cell.count) for lane in range(code.lanes)]
        return code.builder.shuffle_vector(value, few.constant(0.0), _places(where))
    found: Any = code.constant(0.0)
    for lane in range(cell.count):
        value = code.load_scalar(address, offset + (cell.pixel + lane) * step)
        found = code.builder.insert_element(found, value, ir.IntType(32)(lane))
    return found


def store(
    code: GroupBuilder, value: ir.Value, address: ir.Value, offset: int, cell: Cell, step: int
) -> None:
    """Store a cell of a tile whose pixels are `step` apart."""
    if len(code.parts):
        code.store(
            value, address, offset + cell.pixel * step * code.images + code.lanes * cell.part
        )
    elif step == 1:
        if cell.count < code.lanes:
            value = code.builder.shuffle_vector(value, value, _places(list(range(cell.count))))
        VectorBuilder(code.builder, cell.count).store(value, address, offset + cell.pixel)
    else:
        for lane in range(cell.count):
            one = code.builder.extract_element(value, ir.IntType(32)(lane))
            code.store_scalar(one, address, offset + (cell.pixel + lane) * step)


def _places(lanes: list[int]) -> ir.Value:
    return ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
