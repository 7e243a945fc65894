"""The reader of an ONNX graph: it makes the nodes of a network, and collects what it cannot."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from pareo.errors import PareoError, ShapeError
from pareo.nn.graph import INPUT
from pareo.nn.layers import Layer, Shape
from pareo.nn.onnx_import import constants
from pareo.nn.onnx_import.file import File, onnx_module
from pareo.nn.onnx_import.names import Scopes, of_weight
from pareo.nn.onnx_import.values import Constant, Term
from pareo.nn.shapes import Reshape
from pareo.nn.torch_import.moved import Moved
from pareo.nn.torch_import.reader import Made, Reader
from pareo.nn.torch_import.values import Unknown, Unsupported, Value
from pareo.nn.torch_names import TorchName

BATCH = 2  # images where the file leaves the batch open; the gate has another number
ELEMENTS = 2**28  # of one value, for one image; more is a mistake in a file, or malice
SPARE = 2**27  # elements of constants that are computed, besides those of the file itself
# Operators that are not read; what comes after them is looked at, too, for the list of problems.
SAME_SHAPE = frozenset({
    "Acos", "Asin", "Atan", "Ceil", "Cos", "Floor", "Hardmax", "Round", "Shrink", "Sign", "Sin",
    "Tan", "ThresholdedRelu",
})  # fmt: skip
DTYPES = {1: np.dtype("float32"), 11: np.dtype("float64")}  # onnx.TensorProto.FLOAT and DOUBLE


@dataclass
class Step:
    """A node of the file, with what it reads.

    inputs: None where an optional input is left out. attributes: those that were given, or the
    defaults of the operator. read: the names of attributes that were asked for.
    """

    op: str
    name: str
    inputs: list[Any]
    tensors: list[str]
    outputs: list[str]
    attributes: Mapping[str, Any]
    given: frozenset[str]
    proto: Any
    read: set[str] = field(default_factory=set)

    def input(self, place: int) -> Any:
        """An input, or None."""
        return self.inputs[place] if place < len(self.inputs) else None

    def get(self, name: str, usual: Any = None) -> Any:
        """An attribute."""
        self.read.add(name)
        found = self.attributes.get(name)
        return usual if found is None else found

    def numbers(self, place: int, what: str) -> Any:
        """An input that must be a constant, as an array; None if it is left out."""
        found = self.input(place)
        if found is None:
            return None
        if not isinstance(found, Constant):
            raise Unsupported(f"{what} depends on the input of the network")
        return found.array


Operator = Callable[["OnnxReader", Step], Any]


class OnnxReader(Reader):
    """Reads the nodes of an ONNX graph one after another.

    parameters: the weights by path. notes: what a user should know of the network.
    """

    def __init__(self, file: File, given: Shape | None) -> None:
        self.file, self.graph = file, file.model.graph
        self._initialisers = {one.name: one for one in self.graph.initializer}
        self.input, self.dtype, batch, shape = self._input(given)
        super().__init__(SimpleNamespace(state_dict={}), batch or BATCH, shape)
        self._reserved = {of_weight(name) for name in self._initialisers} - {""}
        self.fixed_batch = batch
        self.parameters: dict[str, Any] = {}
        self.roots: dict[str, str] = {}  # the initialiser of each name that is another for one
        self.notes: list[str] = []
        self.changed: set[str] = set()  # tensors that became part of what reads them
        self.values: dict[str, Any] = {}
        self.uses = Counter(name for node in self.graph.node for name in node.input)
        self.uses.update(one.name for one in self.graph.output)
        self._spent = 0
        self._spare = SPARE + sum(math.prod(one.dims) for one in self._initialisers.values())
        self._wanted: Shape = ()
        self._scopes = Scopes(self.graph.node)
        self._here: Any = None

    def _input(self, given: Shape | None) -> tuple[str, Any, int | None, Shape]:
        """The name, the dtype, the batch if the file fixes it, and the shape of one input."""
        path = self.file.path
        inputs = [one for one in self.graph.input if one.name not in self._initialisers]
        if len(inputs) != 1:
            raise PareoError(f"{path}: expected a network of one input; got {len(inputs)}")
        kind = inputs[0].type.tensor_type
        if kind.elem_type not in DTYPES:
            raise PareoError(f"{path}: expected an input of float32 or float64 numbers")
        sizes = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
        if not kind.HasField("shape") or len(sizes) < 2:
            raise PareoError(f"{path}: expected an input of shape (N, ...); got {sizes}")
        batch, *inside = sizes
        if given is not None:
            fits = len(given) == len(inside) and all(
                size in (None, wanted) for size, wanted in zip(inside, given, strict=True)
            )
            if not fits:
                raise PareoError(f"{path}: its input is {_shown(sizes)}, not (N, *{given})")
            inside = list(given)
        if None in inside:
            raise PareoError(
                f"{path}: its input is {_shown(sizes)}; give the shape of one input, such as "
                "(3, 224, 224)"
            )
        shape = tuple(int(size or 0) for size in inside)
        count = 1 if batch is None else batch
        if min(count, *shape) < 1 or count * math.prod(shape) > ELEMENTS:
            raise PareoError(f"{path}: its input is {_shown(sizes)}, which pareo does not take")
        return inputs[0].name, DTYPES[kind.elem_type], batch, shape

    def read_graph(self, operators: Mapping[str, Operator]) -> None:
        """Read the whole graph with these operators."""
        self.values[self.input] = Value(INPUT, self._shape)
        for node in self.graph.node:
            step = self._step(node)
            self._here = step
            for name, found in zip(step.outputs, self._results(step, operators), strict=False):
                self.values[name] = found

    def constant_of(self, name: str) -> Any:
        """What a name stands for: a value that is known, or an initialiser."""
        if name not in self.values and name in self._initialisers:
            tensor = self._initialisers[name]
            try:
                array = onnx_module("onnx.numpy_helper").to_array(tensor)
            except (ValueError, TypeError, KeyError) as error:
                raise PareoError(
                    f"{self.file.path}: the tensor '{name}' has other numbers than its shape "
                    f"{[*tensor.dims]} asks for"
                ) from error
            origin = TorchName(name, "same", tuple(array.shape))
            self.values[name] = Constant(array, name, origin)
        return self.values[name]

    def _step(self, node: Any) -> Step:
        inputs = [self.constant_of(name) if name else None for name in node.input]
        found = {one.name: _attribute(one) for one in node.attribute}
        named = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        usual = _defaults(node.op_type, self.file.opset) if named == node.op_type else {}
        return Step(
            named, node.name, inputs, list(node.input), list(node.output), {**usual, **found},
            frozenset(found), node,
        )  # fmt: skip

    def _results(self, step: Step, operators: Mapping[str, Operator]) -> Iterator[Any]:
        """What the outputs of a node stand for."""
        given = [one for one in step.inputs if one is not None]
        unknown = any(isinstance(one, Unknown) for one in given)
        try:
            if step.op == "Constant":
                found: Any = Constant(_constant(step), step.outputs[0])
            elif all(isinstance(one, Constant) for one in given) and step.op != "Dropout":
                found = self._computed(step, given)
            elif step.op not in operators and not (step.op in constants.FUNCTIONS and unknown):
                self._problem(step.op, step)
                found = step.inputs[0] if step.op in SAME_SHAPE else Unknown()
            elif unknown:
                found = Unknown()
            else:
                found = operators[step.op](self, step)
                self._check(step, found)
        except (Unsupported, ShapeError) as error:
            self._problem(f"{step.op} ({error})", step)
            found = Unknown()
        except (ValueError, IndexError, KeyError, TypeError, ArithmeticError) as error:
            # What onnx's checker lets pass: an axis that there is not, or a shape of no sense.
            self._problem(f"{step.op} (what it is given does not fit: {error})", step)
            found = Unknown()
        if isinstance(found, list):
            yield from found
        else:
            yield found
            for name in step.outputs[1:]:
                if self.uses[name] and not isinstance(found, Unknown):
                    self._problem(f"{step.op} (its result '{name}' is used)", step)
                yield Unknown()

    def _check(self, step: Step, found: Any) -> None:
        """Refuse what has attributes that nothing asked for, or another shape than it says."""
        usual = _defaults(step.op, self.file.opset)
        for name in sorted(step.given - step.read):
            if step.attributes[name] != usual.get(name):
                raise Unsupported(f"with {name} = {step.attributes[name]}")
        if isinstance(found, Value) and math.prod(found.seen) > ELEMENTS:
            raise Unsupported(f"its result has {math.prod(found.seen):,} elements for each input")

    def _computed(self, step: Step, given: list[Constant]) -> Any:
        if step.op not in constants.FUNCTIONS:
            self._problem(f"{step.op} (of constants)", step)
            return Unknown()
        arrays = [None if one is None else one.array for one in step.inputs]
        try:
            size = constants.size_of_result(step.op, arrays, step.attributes)
        except (ValueError, IndexError, KeyError, TypeError) as error:
            raise Unsupported("of constants that do not fit") from error
        self._spent += size
        if self._spent > self._spare:
            raise Unsupported(f"its constants take more than {self._spare:,} elements")
        array = constants.compute(step.op, arrays, step.attributes)
        if not given:
            return Constant(array, step.outputs[0])
        if step.op == "Identity":
            self.roots[step.outputs[0]] = self.root(step.tensors[0])
        repeated = given[0] if step.op == "Expand" else None
        return Constant(array, step.outputs[0], _origin(step, given[0], array), repeated)

    def root(self, name: str) -> str:
        """The initialiser that a name is another one for, or the name itself."""
        return self.roots.get(name, name)

    def want(self, shape: Shape) -> None:
        """Say which shape, with the batch, the result of the present node has."""
        self._wanted = shape

    def expected(self) -> Shape:
        """The shape that the result of the present node has, with the batch."""
        return self._wanted

    def layer(self, layer: Layer, x: Value, weights: Any = None) -> Value:
        """A node for a layer; `weights` are its parameters: an array, and its `TorchName`."""
        if x.wide:
            raise Unsupported("of values that are repeated")
        size = math.prod(layer.output(x.shape))
        if size > ELEMENTS:
            raise Unsupported(f"its result has {size:,} elements for each input")
        name = self._layer_name(weights or {})
        for key, parameter in layer.parameters(x.shape).items():
            array, origin = weights[key]
            if array.shape != parameter.shape:
                raise Unsupported(f"its weight '{origin.name}' has the shape {origin.shape}")
            self._add_weight(f"{name}.{key}", array, origin)
        self.nodes[name] = Made(layer, (x.node,), self._here)
        self.shapes[name] = layer.output(x.shape)
        return Value(name, self.shapes[name], x.last)

    def _add_weight(self, path: str, array: Any, origin: TorchName) -> None:
        if array.dtype != self.dtype:
            raise Unsupported(f"its weight '{origin.name}' is {array.dtype}, not {self.dtype}")
        self.names[path] = origin
        self.parameters[path] = np.array(array, order="C")

    def with_bias(self, x: Value, tensor: str, bias: Constant) -> bool:
        """Whether a bias became part of the layer that made `tensor`, which nothing else reads."""
        name, made = x.node, self.nodes.get(x.node)
        if made is not None and isinstance(made.what, Reshape) and made.reads[0] != INPUT:
            before = self.nodes[made.reads[0]]  # a dense layer of more axes is shaped for itself
            if before.source is made.source:
                name, made = made.reads[0], before
        layer: Any = None if made is None else made.what
        if made is None or getattr(layer, "bias", True) or self.uses[tensor] != 1:
            return False
        if made.source.outputs[:1] != [tensor] or bias.array.size != _units(layer):
            return False
        self.changed.add(tensor)
        self._add_weight(f"{name}.b", bias.array.ravel(), bias.named("reshaped"))
        self.nodes[name] = Made(replace(layer, bias=True), made.reads, made.source)
        return True

    def replaced(self, x: Value, tensor: str, layer: Layer, weights: Mapping[str, Any]) -> Value:
        """The node of a value with another layer instead; `weights` are new or other parameters."""
        made = self.nodes[x.node]
        self.changed.add(tensor)
        for key, (array, origin) in weights.items():
            self._add_weight(f"{x.node}.{key}", array, origin)
        self.nodes[x.node] = Made(layer, made.reads, made.source)
        return x

    def _layer_name(self, weights: Mapping[str, Any]) -> str:
        taken = {INPUT, *self.nodes}
        first = next((origin.name for _, origin in weights.values()), "")
        name = of_weight(first)
        if name and name not in taken:
            return name
        return _free(name or self._scopes.name(self._here.proto), taken | self._reserved)

    def _name(self, weight: Any) -> str:
        return self._layer_name({})

    def _problem(self, what: str, node: Any) -> None:
        self.problems.setdefault(what, []).append(place_of(node))

    def result_of(self) -> Value:
        """The result of the network."""
        path, outputs = self.file.path, self.graph.output
        if len(outputs) != 1:
            raise PareoError(f"{path}: expected a network with one result; got {len(outputs)}")
        found = self.values.get(outputs[0].name)
        if isinstance(found, Moved):
            raise PareoError(f"{path}: the batch is not the first axis of its result")
        if isinstance(found, Term):
            raise PareoError(f"{path}: its result is one {found.reason}")
        if not isinstance(found, Value):
            raise PareoError(f"{path}: its result does not depend on its input")
        if found.wide:
            raise PareoError(f"{path}: its result is repeated by Expand")
        self.result = found
        return found


def place_of(step: Step) -> str:
    """The name of a node, or that of its result."""
    return f"the node '{step.name}'" if step.name else f"the node that makes '{step.outputs[0]}'"


def _shown(sizes: list[int | None]) -> str:
    return f"({', '.join('?' if size is None else str(size) for size in sizes)})"


def _units(layer: Any) -> int:
    return int(getattr(layer, "filters", None) or layer.units)


def _free(name: str, taken: set[str]) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


def _attribute(attribute: Any) -> Any:
    """The value of an attribute as Python has it; graphs and the like as they are."""
    onnx = onnx_module()
    found = onnx.helper.get_attribute_value(attribute)
    if attribute.type == onnx.AttributeProto.FLOAT:
        return float(str(np.float32(found)))  # 1e-05, which is 9.99999975e-06 in float32
    if isinstance(found, bytes):
        return found.decode(errors="replace")
    if isinstance(found, onnx.TensorProto):
        return onnx_module("onnx.numpy_helper").to_array(found)
    return list(found) if isinstance(found, list | tuple) else found


def _defaults(op: str, opset: int) -> dict[str, Any]:
    """The default values of an operator's attributes."""
    onnx = onnx_module()
    try:
        schema = onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        return {}
    usual = {name: one.default_value for name, one in schema.attributes.items()}
    return {name: _attribute(one) for name, one in usual.items() if one.type}


def _constant(step: Step) -> Any:
    for name, dtype in (
        ("value", None), ("value_float", np.float32), ("value_floats", np.float32),
        ("value_int", np.int64), ("value_ints", np.int64),
    ):  # fmt: skip
        if name in step.given:
            return np.asarray(step.attributes[name], dtype)
    raise Unsupported(f"with {', '.join(sorted(step.given))}")


def _origin(step: Step, first: Constant, array: Any) -> TorchName | None:
    """Which initialiser an array is, if its elements are only seen in another way."""
    origin = first.origin
    if step.op == "Identity":
        # Exporters write weights that are equal to each other once; each has a name of its own.
        own = bool(of_weight(step.outputs[0])) and origin is not None
        return TorchName(step.outputs[0], "same", first.shape) if own else origin
    if origin is None or array.size != first.array.size:
        return None
    if step.op in ("Reshape", "Squeeze", "Unsqueeze", "Expand"):
        return None if origin.how == "transposed" else replace(origin, how="reshaped")
    if step.op == "Transpose" and array.ndim == 2 and origin.how != "reshaped":
        turned = step.attributes.get("perm") in (None, [1, 0])
        how = "transposed" if turned == (origin.how == "same") else "same"
        return replace(origin, how=how)
    return None
