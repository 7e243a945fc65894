"""The text of what XLA compiled, parsed for the shape, kind and FLOPs of each instruction."""

import math
import re
from dataclasses import dataclass, field

from pareo.lab.kernels.classify import XLA, kind
from pareo.lab.kernels.events import Kind

LINE = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|[\w\[\],]+)\S* ([\w\-]+)\(([^)]*)\)(.*)$")
HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
PRODUCTS = ("dot", "convolution")
NUMBERING = {"add", "and", "clamp", "compare", "or", "select"}
REDUCES = {"reduce", "reduce-window", "select-and-scatter", "scatter", "sort"}
MOVES = {
    "bitcast", "bitcast-convert", "broadcast", "concatenate", "constant", "convert", "copy",
    "dynamic-slice", "dynamic-update-slice", "gather", "get-tuple-element", "iota", "pad",
    "parameter", "reshape", "reverse", "slice", "transpose", "tuple",
}  # fmt: skip


@dataclass
class Op:
    """One instruction; operands are names, `inside` is the computation that it calls."""

    name: str
    opcode: str
    results: list[list[int]]
    operands: list[str]
    attributes: str
    inside: str | None = None

    @property
    def shape(self) -> list[int] | None:
        """The shape of its result; None for a tuple."""
        return self.results[0] if len(self.results) == 1 else None


@dataclass
class Module:
    """The instructions of a compiled program, by name and by computation."""

    ops: dict[str, Op] = field(default_factory=dict)
    computations: dict[str, list[Op]] = field(default_factory=dict)

    def products(self, name: str) -> list[Op]:
        """The products and convolutions that an instruction is, or contains."""
        op = self.ops.get(name)
        if op is None:
            return []
        if op.opcode in PRODUCTS:
            return [op]
        if op.opcode not in ("fusion", "call"):
            return []
        return [found for part in self.computations.get(op.inside or "", ())
                for found in self.products(part.name)]  # fmt: skip

    def kind(self, name: str) -> Kind:
        """The kind of an instruction: by what it contains, otherwise by its name."""
        found = self.products(name)
        if any(op.opcode == "convolution" for op in found):
            return "convolution"
        if found:
            batched = any("lhs_batch_dims={" in op.attributes for op in found)
            return "batched gemm" if batched else "gemm"
        inside = self._opcodes(name)
        if inside & REDUCES:
            return "reduction"
        if inside and not inside - MOVES:
            return "copy"
        if "gather" in inside and not inside - MOVES - NUMBERING:
            return "copy"  # of rows that were picked, whose numbers were looked at
        return "elementwise" if inside else kind(name, XLA)

    def _opcodes(self, name: str) -> set[str]:
        """The opcodes that an instruction consists of; empty where they are not known."""
        op = self.ops.get(name)
        if op is None or op.opcode in ("while", "conditional", "custom-call"):
            return set()
        if op.opcode not in ("fusion", "call"):
            return {op.opcode}
        parts = self.computations.get(op.inside or "", ())
        return set[str]().union(*(self._opcodes(part.name) for part in parts))

    def flops(self, name: str) -> float | None:
        """FLOPs of the products and convolutions in an instruction; None where there are none."""
        found = self.products(name)
        return sum(map(self._flops, found)) if found else None

    def shapes(self, name: str) -> str:
        """Shapes that an instruction reads and writes; those of the product in a fusion."""
        op = next(iter(self.products(name)), self.ops.get(name))
        if op is None:
            return ""
        read = [self.ops[n].shape for n in op.operands if n in self.ops]
        arrays = [shape for shape in read if shape] or [shape for shape in read if shape == []]
        return f"{_written(arrays)} -> {_written(op.results)}".strip()

    def _flops(self, op: Op) -> float:
        out, left, right = op.shape or [], *(self.ops[n].shape or [] for n in op.operands[:2])
        if op.opcode == "dot":
            along = _numbers(op.attributes, "lhs_contracting_dims")
            return 2.0 * math.prod(out) * math.prod(left[axis] for axis in along)
        labels = re.search(r"dim_labels=\w+_(\w+)->", op.attributes)
        filters = right[labels.group(1).index("o")] if labels else 1
        # Of a gradient's images, most pixels are zeros in between, where the stride was.
        spread = re.search(r"lhs_dilate=([\dx]+)", op.attributes)
        zeros = math.prod(map(int, spread.group(1).split("x"))) if spread else 1
        return 2.0 * math.prod(out) * math.prod(right) / filters / zeros


def parsed(text: str) -> Module:
    """The instructions in a compiled module's text.

    >>> text = '''
    ... %inside (a: f32[2,3], b: f32[3,4]) -> f32[2,4] {
    ...   %a = f32[2,3]{1,0} parameter(0)
    ...   %b = f32[3,4]{1,0} parameter(1)
    ...   ROOT %dot.1 = f32[2,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}
    ... }
    ... ENTRY %main (x: f32[2,3], y: f32[3,4]) -> f32[2,4] {
    ...   %x = f32[2,3]{1,0} parameter(0)
    ...   %y = f32[3,4]{1,0} parameter(1)
    ...   ROOT %custom_fusion = f32[2,4]{1,0} fusion(%x, %y), kind=kCustom, calls=%inside
    ... }'''
    >>> module = parsed(text)
    >>> module.kind("custom_fusion"), module.flops("custom_fusion"), module.shapes("custom_fusion")
    ('gemm', 48.0, '2x3, 3x4 -> 2x4')
    """
    module = Module()
    current: list[Op] = []
    for line in text.splitlines():
        if head := HEAD.match(line):
            current = module.computations.setdefault(head.group(1), [])
        elif found := LINE.match(line):
            name, shape, opcode, operands, attributes = found.groups()
            called = re.search(r"(?:calls|to_apply)=%?([\w.\-]+)", attributes)
            op = Op(
                name,
                opcode,
                _sides(shape),
                re.findall(r"%([\w.\-]+)", operands),
                attributes,
                called.group(1) if called else None,
            )
            module.ops[name] = op
            current.append(op)
    return module


def _sides(shape: str) -> list[list[int]]:
    """The shape of an array, or the shapes of those in a tuple."""
    found = re.findall(r"\w+\[([\d,]*)\]", shape)
    return [[int(side) for side in sides.split(",") if side] for sides in found]


def _numbers(attributes: str, name: str) -> list[int]:
    found = re.search(rf"{name}=\{{([\d,]*)\}}", attributes)
    return [int(n) for n in found.group(1).split(",") if n] if found else []


def _written(shapes: list[list[int]]) -> str:
    """Shapes as text; a scalar is 1.

    >>> _written([[2, 3], []])
    '2x3, 1'
    """
    return ", ".join("x".join(map(str, shape or [1])) for shape in shapes)
