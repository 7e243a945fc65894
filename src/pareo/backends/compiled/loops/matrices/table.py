"""From a compiled program of matrices to the table that `interpreter` runs."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from pareo.backends.compiled.kernels.elementwise_codes import CODES, NONE
from pareo.backends.compiled.loops.matrices import interpreter as machine
from pareo.backends.compiled.loops.matrices import opcodes, packed_products
from pareo.backends.compiled.loops.matrices.interpreter import BY_COLUMNS, BY_ROWS
from pareo.backends.compiled.loops.matrices.rows import ALL, Row, Table, Unsupported
from pareo.backends.compiled.loops.matrices.schedule import Place, set_barriers, with_fused_updates
from pareo.backends.compiled.loops.matrices.tile_products import IS_WIDE
from pareo.program.ir import Instruction, Program
from pareo.program.plan import Plan

MANY_ROWS = 12 if IS_WIDE else 32  # of each worker; with fewer, workers divide the columns
# Weights that take longer to pass between the caches of two cores, if one worker reads what another
# one writes, than workers take to wait for each other. Each has so many rows of them at least.
PASSED_ON, OWN_ROWS = 1 << 14, 32
PARTS = 1 << 12  # from the program's numbers to those of workers' parts: more than work arrays
LARGE = 1 << 17  # weights, of which each worker should read a part: it copies what it reads
DENSE = {"dot_bias": "none", "dot_bias_relu": "relu", "dot_bias_sigmoid": "sigmoid",
         "dot_bias_tanh": "tanh"}  # fmt: skip
BATCH_NORMS = ("none", "relu", "clip", "silu", "hard_swish")  # activations fused with it


class Compiled(Protocol):
    """A compiled program, with memory or without.

    over: the results that are written over an argument, with the argument
    """

    @property
    def program(self) -> Program: ...

    @property
    def plan(self) -> Plan: ...

    @property
    def over(self) -> Mapping[int, int]: ...


def table(compiled: Compiled, workers: int) -> Table:
    """The table of a training step.

    Raises:
        Unsupported: the program has something else than a table can do.
    """
    lowering = _Lowering(compiled, workers)
    for position, instruction in enumerate(compiled.program.instructions):
        lowering.add(position, instruction)
    rows = list(with_fused_updates(lowering.rows, lowering.place))
    if sum(row.opcode == machine.LOSS for row in rows) != 1:
        raise Unsupported
    gathered = lowering.place(lowering.images), f"rows {lowering.shape(lowering.images)[0]}"
    set_barriers(rows, gathered, lowering.place)
    return Table(rows, lowering.scratch, lowering.in_panels, lowering.partial)


def data_of(program: Program) -> tuple[int, int]:
    """The values of a batch's images and labels: its labels are the only whole numbers."""
    whole = [p for p, n in enumerate(program.inputs) if program.specs[n].dtype == np.int64]
    if len(whole) != 1 or whole[0] == 0 or not program.specs[program.inputs[whole[0]]].ndim:
        raise Unsupported  # a number alone is a seed
    return program.inputs[whole[0] - 1], program.inputs[whole[0]]


def weights_in_panels(compiled: Compiled, images: int) -> dict[int, tuple[int, int]]:
    """The weights that only layers and their updates use, and the batch suits panels; shapes."""
    program, views = compiled.program, compiled.plan.views
    batch = program.specs[images].shape[0]
    root = {n: n for n in program.specs}
    uses: dict[int, list[tuple[str, int]]] = {}
    updated = {}
    for instruction in program.instructions:
        if instruction.outputs[0] in views:
            root[instruction.outputs[0]] = root[instruction.inputs[0]]
            if instruction.name == "transpose":
                continue
        for position, number in enumerate(instruction.inputs):
            name = instruction.name if root[number] == number else f"{instruction.name} turned"
            uses.setdefault(root[number], []).append((name, position))
        if instruction.name == "descend":
            updated[instruction.inputs[0]] = instruction.outputs[0]
    found = {}
    for number, new in updated.items():
        shape = program.specs[number].shape
        allowed = {("descend", 0), ("dot turned", 1), *((name, 1) for name in ("dot", *DENSE))}
        is_only_read_by_layers = (
            number in program.inputs
            and compiled.over.get(new) == number
            and new not in uses
            and allowed.issuperset(uses[number])
        )
        if is_only_read_by_layers and packed_products.suits(batch, *shape):
            found[number] = shape[0], shape[1]
    return found


class _Lowering:
    """The rows so far, and what is known of the program's values."""

    def __init__(self, compiled: Compiled, workers: int) -> None:
        self.program, self.plan = compiled.program, compiled.plan
        self.over = compiled.over
        self.workers = workers
        self.rows: list[Row] = []
        self.scratch: dict[int, int] = {}
        self.loss = self.program.outputs[0]
        self.images, self.labels = data_of(self.program)
        self._transposed: set[int] = set()
        self._root = {n: n for n in self.program.specs}
        self.in_panels = weights_in_panels(compiled, self.images)
        self.partial: dict[int, int] = {}  # two, which products use in turn
        self._products = 0

    def shape(self, number: int) -> tuple[int, ...]:
        return self.program.specs[number].shape

    def root(self, number: int) -> int:
        """The value whose memory a value is a view of."""
        return self._root[number]

    def place(self, number: int) -> Place:
        """The memory of a value: whose it is, where it begins and ends."""
        number = self.over.get(number, number)
        if number in self.partial:
            return f"parts {number}", 0, 1
        if number in self.scratch:
            spec, offset = self.plan.scratch[self.scratch[number]][0]
            return "arena", offset, offset + spec.nbytes
        nbytes = self.program.specs[number].nbytes
        if number in self.plan.offsets:
            offset = self.plan.offsets[number]
            return "arena", offset, offset + nbytes
        return f"value {number}", 0, nbytes

    def add(self, position: int, instruction: Instruction) -> None:
        """Append the rows of the instruction at a position."""
        name, inputs, outputs = instruction.name, instruction.inputs, instruction.outputs
        if outputs[0] in self.plan.views:
            self._view(instruction)
            return
        specs = [self.program.specs[n] for n in (*inputs, *outputs)]
        labels = self.program.specs[inputs[-1]] if name == "cross_entropy_with_gradient" else None
        if any(s.dtype != np.float32 for s in specs if s is not labels):
            raise Unsupported
        turned = [n in self._transposed for n in inputs]
        inputs = tuple(self.root(n) for n in inputs)
        if name in ("dot", "descend") or name in DENSE:
            self._product(name, inputs, outputs[0], turned)
            return
        if any(turned):
            raise Unsupported
        attributes = dict(instruction.attributes)
        if name == "sum" and attributes["axis"] == (0,) and len(self.shape(inputs[0])) == 2:
            self._sums(outputs[0], inputs[0])
        elif name == "step_down":
            self._update(outputs[0], *inputs)
        elif name == "blend":
            self._blend(outputs[0], *inputs)
        elif name == "add" and self.shape(inputs[0]) == self.shape(inputs[1]):
            self._elementwise(machine.ADD, NONE, outputs[0], inputs, ())
        elif name == "layer_norm" and len(self.shape(inputs[0])) == 2 and attributes["axis"] == 1:
            self._layer_norm((outputs[0], *inputs), attributes["epsilon"])
        elif name == "layer_norm_gradient" and len(self.shape(inputs[0])) == 2:
            statistics = self._scratch(position)
            self._layer_norm_gradient((*outputs, *inputs, statistics), **attributes)
        elif name == "batch_norm_inference":
            self._batch_norm_again((outputs[0], *inputs), attributes["epsilon"])
        elif name in ("batch_norm_add", "batch_norm_add_relu"):
            self._batch_norm_add(name, outputs, inputs, attributes)
        elif name in ("relu_batch_norm_gradient", "add_relu_batch_norm_gradient"):
            self._relu_batch_norm_gradient(outputs, inputs, attributes)
        elif name.startswith("batch_norm"):
            self._batch_norm(name, outputs, inputs, attributes)
        elif name == "cross_entropy_with_gradient":
            self._loss(outputs, *inputs)
        else:
            self._activation(name, outputs, inputs, attributes)

    def _view(self, instruction: Instruction) -> None:
        source, result = instruction.inputs[0], instruction.outputs[0]
        turns = instruction.name == "transpose"
        if turns and (len(self.shape(source)) != 2 or source in self._transposed):
            raise Unsupported
        if not turns and (instruction.name != "reshape" or source in self._transposed):
            raise Unsupported
        self._root[result] = self.root(source)
        if turns:
            self._transposed.add(result)

    def _matrix(self, number: int) -> tuple[int, int]:
        shape = self.shape(number)
        if len(shape) != 2:
            raise Unsupported
        return shape[0], shape[1]

    def _split(self, rows: int) -> int:
        return BY_ROWS if rows >= MANY_ROWS * self.workers or self.workers == 1 else BY_COLUMNS

    def _part(self, split: int, rows: int, columns: int) -> str:
        """The part of a matrix that a worker has; two of the same name are the same elements."""
        return f"rows {rows}" if split == BY_ROWS else f"columns {columns}"

    def _product(self, name: str, inputs: tuple[int, ...], out: int, turned: list[bool]) -> None:
        rate, bias, x = -1, -1, -1
        if name == "descend":
            x, a, b, rate = inputs
            if self.place(out) != self.place(x):
                raise Unsupported
            turned = turned[1:3]
        else:
            a, b = inputs[:2]
            bias = inputs[2] if name in DENSE else -1
            if any(turned[2:]):
                raise Unsupported
        (m, n), depth = self._matrix(out), self._depth(a, turned[0])
        code = CODES[DENSE.get(name, "none")]
        reads, split, opcode = [], self._split(m), machine.PRODUCT
        if self.workers > 1 and n > m and n * depth >= LARGE:
            split = BY_COLUMNS
        weights = x if x >= 0 else b
        if weights in self.in_panels:
            if rate >= 0 or turned[1]:
                self._packed_backward((x, a, b) if rate >= 0 else (-1, a, b), out, rate)
                return
            opcode = machine.PACKED_FORWARD
        elif turned[0]:  # the gradient of weights: the examples are added up
            split = BY_ROWS
            if rate >= 0 and not turned[1]:
                opcode = opcodes.update(depth, m, n)
        elif rate < 0:
            opcode = (opcodes.transposed if turned[1] else opcodes.forward)(m, n, depth)
            if opcode in (machine.SMALL_FORWARD, machine.SMALL_TRANSPOSED):
                split = BY_COLUMNS
        is_tile = opcode in (machine.SMALL_FORWARD, machine.TILE_FORWARD) and IS_WIDE
        is_passed_on = n * depth >= PASSED_ON and depth >= OWN_ROWS * self.workers > OWN_ROWS
        if is_tile and split == BY_COLUMNS and is_passed_on:
            self._product_in_parts(out, (a, b, bias), depth, code)
            return
        own = self._part(split, m, n)
        if opcode == machine.PACKED_FORWARD and split == BY_COLUMNS:
            own += " in panels"
        reads = [(a, own if split == BY_ROWS and not turned[0] else ALL), (b, ALL)]
        reads += [(bias, ALL)] if bias >= 0 else []
        reads += [(out, own)] if rate >= 0 else []
        row = Row(opcode, (out, a, b, -1, bias), (m, n, depth), reads, [(out, own)], split, code,
                  transposed=(turned[0], turned[1]), rate=rate)  # fmt: skip
        self.rows.append(row)

    def _product_in_parts(
        self, out: int, given: tuple[int, int, int], depth: int, code: int
    ) -> None:
        """A product to which each worker adds the rows of weights that it updates, too."""
        (m, n), (a, b, bias) = self._matrix(out), given
        own, columns = self._part(BY_COLUMNS, m, n), self._part(BY_COLUMNS, m, depth)
        parts = max(self.program.specs) + PARTS + self._products % 2
        self._products += 1
        self.partial[parts] = max(self.partial.get(parts, 0), self.workers * m * n)
        self.rows.append(
            Row(machine.PARTIAL_FORWARD, (parts, a, b), (m, n, depth), [(a, columns), (b, ALL)],
                [(parts, "a worker's")], BY_COLUMNS)
        )  # fmt: skip
        reads = [(parts, ALL), *([(bias, ALL)] if bias >= 0 else [])]
        self.rows.append(
            Row(machine.ADD_PARTS, (out, parts, -1, -1, bias), (m, n, depth), reads, [(out, own)],
                BY_COLUMNS, code)
        )  # fmt: skip

    def _packed_backward(self, given: tuple[int, int, int], out: int, rate: int) -> None:
        """The update of weights in panels, or without them the gradient of their layer's input."""
        weights, a, b = given
        if rate >= 0:
            values: tuple[int, ...] = (-1, b, weights, a)
            (inputs, features), batch = self._matrix(out), self._flat(b)[0]
        else:
            values = (out, a, b, -1)
            (batch, inputs), features = self._matrix(out), self._flat(a)[1]
        own = self._part(BY_COLUMNS, batch, inputs)
        gradient, w = values[1:3]
        reads = [(gradient, ALL), (w, ALL), *([(a, own)] if rate >= 0 else [])]
        writes = [(out, ALL if rate >= 0 else own)]
        self.rows.append(
            Row(machine.PACKED_BACKWARD, values, (batch, inputs, features), reads, writes,
                BY_COLUMNS, rate=rate)
        )  # fmt: skip

    def _depth(self, a: int, turned: bool) -> int:
        rows, columns = self._flat(a)
        return rows if turned else columns

    def _flat(self, number: int) -> tuple[int, int]:
        """The shape of a matrix; that of images is flat."""
        shape = self.shape(number)
        return shape[0], int(np.prod(shape[1:]))

    def _elementwise(
        self, opcode: int, code: int, out: int, inputs: tuple[int, ...],
        numbers: tuple[float, ...],
    ) -> None:  # fmt: skip
        m, n = self._matrix(out)
        split = self._split(m)
        own = self._part(split, m, n)
        reads = [(number, own) for number in inputs]
        row = Row(opcode, (out, *inputs), (m, n, 0), reads, [(out, own)], split, code, numbers)
        self.rows.append(row)

    def _activation(
        self, name: str, outputs: tuple[int, ...], inputs: tuple[int, ...],
        attributes: dict[str, float],
    ) -> None:  # fmt: skip
        sums = name.endswith("_bias_gradient")
        gradient = name.endswith("_gradient")
        base = name.removesuffix("_gradient").removesuffix("_bias")
        if base == "gelu" and attributes.pop("approximate", False):
            base = "gelu_tanh"
        attributes.pop("approximate", None)
        known = base in CODES and len(inputs) == 1 + gradient
        if not known or attributes.keys() - {"slope", "low", "high"}:
            raise Unsupported
        numbers = tuple(attributes[key] for key in ("slope", "low", "high") if key in attributes)
        opcode = machine.DIFFERENTIATE if gradient else machine.ACTIVATE
        self._elementwise(opcode, CODES[base], outputs[0], inputs, numbers)
        if sums:
            self._sums(outputs[1], outputs[0])

    def _sums(self, out: int, a: int) -> None:
        m, n = self._matrix(a)
        own = f"columns {n}"
        self.rows.append(
            Row(machine.COLUMN_SUMS, (out, a), (m, n, 0), [(a, own)], [(out, own)], BY_COLUMNS)
        )

    def _update(self, out: int, parameter: int, gradient: int, rate: int) -> None:
        if self.place(out) != self.place(parameter):
            raise Unsupported
        n = self.program.specs[out].size
        own = f"columns {n}"
        self.rows.append(
            Row(machine.STEP_DOWN, (out, gradient), (1, n, 0), [(gradient, own), (out, own)],
                [(out, own)], BY_COLUMNS, rate=rate)
        )  # fmt: skip

    def _blend(self, out: int, a: int, b: int, p: int, q: int) -> None:
        n = self.program.specs[out].size
        own = f"columns {n}"
        self.rows.append(
            Row(machine.BLEND, (out, a, b, p, q), (1, n, 0), [(a, own), (b, own)], [(out, own)],
                BY_COLUMNS)
        )  # fmt: skip

    def _layer_norm(self, values: tuple[int, ...], epsilon: float) -> None:
        out, x, scale, shift = values
        m, n = self._matrix(out)
        own = f"rows {m}"
        reads = [(x, own), (scale, ALL), (shift, ALL)]
        self.rows.append(
            Row(machine.LAYER_NORM, (out, x, scale, shift), (m, n, 0), reads, [(out, own)],
                numbers=(epsilon,))
        )  # fmt: skip

    def _scratch(self, position: int) -> int:
        """A number for the first work array of the instruction at a position."""
        number = max(self.program.specs) + 1 + len(self.scratch)
        self.scratch[number] = position
        return number

    def _layer_norm_gradient(self, values: tuple[int, ...], axis: int, epsilon: float) -> None:
        gx, by_scale, by_shift, g, x, scale, statistics = values
        m, n = self._matrix(gx)
        if axis != 1:
            raise Unsupported
        own, columns = f"rows {m}", f"columns {n}"
        self.rows.append(
            Row(machine.LAYER_NORM_BACKWARD, (gx, g, x, scale, statistics), (m, n, 0),
                [(g, own), (x, own), (scale, ALL)], [(gx, own), (statistics, own)],
                numbers=(epsilon,))
        )  # fmt: skip
        self.rows.append(
            Row(machine.LAYER_NORM_SUMS, (by_scale, g, x, by_shift, statistics), (m, n, 0),
                [(g, columns), (x, columns), (statistics, ALL)],
                [(by_scale, columns), (by_shift, columns)], BY_COLUMNS)
        )  # fmt: skip

    def _batch_norm(
        self, name: str, outputs: tuple[int, ...], inputs: tuple[int, ...],
        attributes: dict[str, float],
    ) -> None:  # fmt: skip
        gradient = name.endswith("_gradient")
        activation = name.removeprefix("batch_norm").removesuffix("_gradient").lstrip("_") or "none"
        if activation not in BATCH_NORMS or len(outputs) != 3:
            raise Unsupported
        limits = tuple(attributes[key] for key in ("low", "high") if key in attributes)
        if attributes.keys() - {"epsilon", "low", "high"}:
            raise Unsupported
        m, n = self._matrix(outputs[0])
        own = f"columns {n}"
        if gradient and activation == "none":
            g, x, scale, mean, variance = inputs
            inputs = (g, x, scale, scale, mean, variance)
        if len(inputs) != (6 if gradient else 3):
            raise Unsupported
        opcode = machine.BATCH_NORM_BACKWARD if gradient else machine.BATCH_NORM
        self.rows.append(
            Row(opcode, (*outputs, *inputs), (m, n, 0), [(number, own) for number in inputs],
                [(number, own) for number in outputs], BY_COLUMNS, CODES[activation],
                (attributes["epsilon"], *limits))
        )  # fmt: skip

    def _batch_norm_again(self, values: tuple[int, ...], epsilon: float) -> None:
        """Normalised values that were not kept (see `recompute`)."""
        out, x, scale, shift, mean, variance = values
        m, n = self._matrix(out)
        own = f"columns {n}"
        reads = [(number, own) for number in values[1:]]
        self.rows.append(
            Row(machine.BATCH_NORM_AGAIN, (out, mean, variance, x, scale, shift), (m, n, 0), reads,
                [(out, own)], BY_COLUMNS, numbers=(epsilon,))
        )  # fmt: skip

    def _batch_norm_add(
        self, name: str, outputs: tuple[int, ...], inputs: tuple[int, ...],
        attributes: dict[str, float],
    ) -> None:  # fmt: skip
        """The normalised values, plus others; perhaps relu of that."""
        *given, rest = inputs
        self._batch_norm("batch_norm", outputs, tuple(given), attributes)
        self._elementwise(machine.ADD, NONE, outputs[0], (outputs[0], rest), ())
        if name.endswith("relu"):
            self._elementwise(machine.ACTIVATE, CODES["relu"], outputs[0], outputs[:1], ())

    def _relu_batch_norm_gradient(
        self, outputs: tuple[int, ...], inputs: tuple[int, ...], attributes: dict[str, float]
    ) -> None:
        """The gradient of relu, perhaps of a sum of two, which is a result; then of the norm."""
        *arriving, y, x, scale, mean, variance = inputs
        d = outputs[0]
        if len(arriving) == 2:
            self._elementwise(machine.ADD, NONE, d, tuple(arriving), ())
            arriving = [d]
        self._elementwise(machine.DIFFERENTIATE, CODES["relu"], d, (arriving[0], y), ())
        given = d, x, scale, mean, variance
        self._batch_norm("batch_norm_gradient", outputs[1:], given, attributes)

    def _loss(self, outputs: tuple[int, ...], g: int, logits: int, labels: int) -> None:
        loss, d = outputs
        m, n = self._matrix(d)
        if loss != self.loss or any(loss in i.inputs for i in self.program.instructions):
            raise Unsupported
        if labels != self.labels:
            raise Unsupported
        own = f"rows {m}"
        self.rows.append(
            Row(machine.LOSS, (d, logits, g), (m, n, 0), [(logits, own), (g, ALL)], [(d, own)])
        )
