"""LLVM's instructions for a group of images that lie side by side.

A value of the group is `lanes` floats, one for each image, in one register or a few.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from pareo.backends.compiled.loops.groups.kernels.window_runs import Run
from pareo.backends.compiled.runtime import native, registers
from pareo.backends.compiled.runtime.llvm_vectors import VectorBuilder

I64 = ir.IntType(64)
QUAD = 4  # weights that are loaded at once
Variables = list[list[Any]]


def as_function(
    context: Any,
    builder: ir.IRBuilder,
    name: str,
    sizes: Sequence[int],
    arguments: Sequence[ir.Value],
    emit: Callable[[ir.IRBuilder, Sequence[ir.Value]], None],
) -> Any:
    """Call a kernel as a function of its own, compiled once for these sizes (see `native`).

    LLVM takes far longer for one function with the kernels of all layers, and longer still if every
    function that calls one has a copy of it.
    """
    native.call(builder, "_".join(["groups", name, *map(str, sizes)]), arguments, emit)
    return context.get_dummy_value()


def width_of(lanes: int) -> int:
    """How many floats of a group of `lanes` images are in a register."""
    return registers.LANES if lanes == 1 else min(registers.LANES, lanes)


def parts_of(lanes: int) -> int:
    """How many registers a value of a group takes; 0 for a single image."""
    return lanes // width_of(lanes)


class GroupBuilder(VectorBuilder):
    """Emits instructions on groups of images, each in `parts` registers."""

    def __init__(self, builder: ir.IRBuilder, lanes: int) -> None:
        super().__init__(builder, width_of(lanes))
        self.images, self.parts = lanes, range(parts_of(lanes))

    def load_group(self, address: ir.Value, offset: int = 0) -> list[ir.Value]:
        """The vectors of one value, `offset` floats after an address."""
        return [self.load(address, offset + self.lanes * q) for q in self.parts]

    def load_weights(self, address: ir.Value, offset: int, count: int) -> list[ir.Value]:
        """`count` weights that lie side by side, each in all lanes of a register.

        Arm's multiply-add can take one lane of a vector, so weights are loaded four at a time.
        """
        if self.lanes != QUAD:
            return [self.load_broadcast(address, offset + f) for f in range(count)]
        whole = count // QUAD * QUAD
        quads = [self.load(address, offset + f) for f in range(0, whole, QUAD)]
        found = [self.broadcast_lane(quads[f // QUAD], f % QUAD) for f in range(whole)]
        if whole < count:
            rest = VectorBuilder(self.builder, count - whole)
            last = rest.load(address, offset + whole)
            for f in range(count - whole):
                where = ir.Constant(ir.VectorType(ir.IntType(32), QUAD), [f] * QUAD)
                nothing = ir.Constant(rest.kind, ir.Undefined)
                found.append(self.builder.shuffle_vector(last, nothing, where))
        return found

    def sums(self, count: int, registers: int | None = None) -> Variables:
        """Variables for the sums of some filters, each in as many registers as a group takes."""
        zero = self.constant(0.0)
        number = len(self.parts) if registers is None else registers
        return [
            [cgutils.alloca_once_value(self.builder, zero) for _ in range(number)]
            for _ in range(count)
        ]

    def multiply_into(
        self, sums: list[list[ir.Value]], weights: list[ir.Value], vectors: list[ir.Value]
    ) -> None:
        """Add each weight times the vectors of a value to the sums of its filter."""
        for of_filter, weight in zip(sums, weights, strict=True):
            for q, vector in enumerate(vectors):
                of_filter[q] = self.multiply_add(weight, vector, of_filter[q])

    def load_all(self, variables: Variables) -> list[list[ir.Value]]:
        """The values of variables, as `sums` has made them."""
        return [[self.builder.load(variable) for variable in row] for row in variables]

    def store_all(self, values: list[list[ir.Value]], variables: Variables) -> None:
        """Store values in variables."""
        for row, targets in zip(values, variables, strict=True):
            for value, target in zip(row, targets, strict=True):
                self.builder.store(value, target)

    def multiply_add(self, a: ir.Value, b: ir.Value, total: ir.Value) -> ir.Value:
        """a * b + total, as one instruction where the processor has it."""
        name, module = f"llvm.fmuladd.v{self.lanes}f32", self.builder.module
        kind = ir.FunctionType(self.kind, [self.kind] * 3)
        function = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(function, [a, b, total])

    def total(self, values: list[ir.Value]) -> ir.Value:
        """The sum of vectors; 0 of none."""
        found = values[0] if values else self.constant(0.0)
        for value in values[1:]:
            found = self.add(found, value)
        return found

    def at(self, address: ir.Value, *moves: tuple[ir.Value, int]) -> ir.Value:
        """An address moved by index times step floats, for each index and step."""
        for index, step in moves:
            address = self.advance(address, index, step)
        return address

    def table(self, rows: Sequence[tuple[int, ...]], name: str) -> Any:
        """A constant table of integers; a function from row and column to the integer."""
        width = len(rows[0])
        flat = [number for row in rows for number in row]
        kind = ir.ArrayType(I64, len(flat))
        module = self.builder.module
        table = ir.GlobalVariable(module, kind, module.get_unique_name(name))
        table.global_constant, table.linkage = True, "internal"
        table.initializer = ir.Constant(kind, flat)

        def entry(row: ir.Value, column: int) -> ir.Value:
            at = self.builder.add(self.builder.mul(row, I64(width)), I64(column))
            return self.builder.load(self.builder.gep(table, [I64(0), at]))

        return entry

    def loop(self, count: ir.Value | int) -> Any:
        """A loop from 0 to count - 1.

        LLVM is not told the count: it would unroll what is unrolled as far as it should be, which
        takes longer to compile and is no faster.
        """
        if isinstance(count, int) and count != 1:
            kind = ir.FunctionType(I64, [I64])
            count = self.builder.asm(kind, "", "=r,0", [I64(count)], side_effect=False)
        return cgutils.for_range(self.builder, I64(1) if isinstance(count, int) else count)


def each_place(code: GroupBuilder, run: Run, body: Callable[[ir.Value, ir.Value], None]) -> None:
    """body(place, source) for each column of a run, both in pixels."""
    if run.count == 1:
        body(I64(run.start), I64(run.first))
        return
    build = code.builder
    with code.loop(run.count) as loop:
        place = build.add(build.mul(loop.index, I64(run.step)), I64(run.start))
        body(place, build.add(build.mul(loop.index, I64(run.move)), I64(run.first)))
