"""The reader of an exported graph: it makes the nodes of a network, and collects what it cannot."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pareo.errors import PareoError, ShapeError
from pareo.nn.graph import INPUT, Graph
from pareo.nn.layers import Dropout, Identity, Layer, StochasticDepth
from pareo.nn.network import Sequential
from pareo.nn.shapes import Index
from pareo.nn.tokens import Learned
from pareo.nn.torch_import.arranged import as_value
from pareo.nn.torch_import.folded import Known, folded
from pareo.nn.torch_import.moved import Moved
from pareo.nn.torch_import.places import module_of, operator_of, place_of, prefix_of, some
from pareo.nn.torch_import.values import Padded, Stale, Unknown, Unsupported, Value, Weight
from pareo.nn.torch_names import TorchName

# Operators whose result is their first argument, seen in another shape or as it is.
VIEWS = frozenset({
    "view", "reshape", "flatten", "permute", "transpose", "swapaxes", "squeeze", "unsqueeze",
    "contiguous", "alias", "dropout", "to", "expand", "expand_as", "chunk", "split",
    "split_with_sizes", "slice", "narrow", "select", "unbind", "getitem", "unflatten", "mT",
    "movedim", "moveaxis", "reshape_as", "view_as",
})  # fmt: skip
ELEMENTS = 2**28  # of one value, for one input; more is a mistake in a file, or malice
LAST = (0, 2, 3, 1)  # the axes of images whose channels PyTorch sees last
# Operators that take values which PyTorch repeats, and those that take a weight for each input.
REPEATED = frozenset(
    {"add", "sub", "mul", "div", "expand", "expand_as", "cat", "contiguous", "clone"}
)
BATCHED = frozenset({"expand", "expand_as", "cat", "contiguous", "clone"})
# Operators that take a weight without a value; the sum is that of a counter.
OF_WEIGHTS = BATCHED | {"view", "reshape", "unsqueeze", "repeat", "add", "empty", "new_empty"}
# Operators that call a part of the graph, and where their arguments for it begin.
INLINE = {"wrap_with_autocast": 5, "wrap_with_set_grad_enabled": 2}


@dataclass(frozen=True)
class Made:
    """A node of the network, and the node of the exported graph that it stands for."""

    what: Layer | str
    reads: tuple[str, ...]
    source: Any


class Reader:
    """Reads the nodes of an exported graph one after another.

    nodes: those of the network by name. names: PyTorch's name of each parameter by path.
    problems: the places of what has no counterpart, by description.
    """

    def __init__(self, program: Any, batch: int, shape: tuple[int, ...]) -> None:
        self.batch, self._shape = batch, shape
        self.nodes: dict[str, Made] = {}
        self.names: dict[str, TorchName] = {}
        self.shapes = {INPUT: shape}  # of the nodes, without the batch
        self.problems: dict[str, list[str]] = {}
        self.result: Value | None = None
        self.program = program
        self._known: dict[Any, Any] = {}
        self._storage: dict[Any, Any] = {}  # of each graph node: the first that has the same
        self._here: Any = None
        self._reserved = {prefix_of(name) for name in program.state_dict}
        self._learned: dict[str, Value] = {}  # weights that are the same for every input

    def read(self, operators: Mapping[str, Any], moved: Mapping[str, Any]) -> None:
        """Read the whole graph with these operators, and those of `Moved` values."""
        self._moved = moved
        self._inputs()
        for node in self.program.graph.nodes:
            self._here = node
            if node.op == "call_function":
                self._known[node] = self._call(node, operators)
            elif node.op == "get_attr":
                tensor = getattr(self.program.graph_module, str(node.target), None)
                if hasattr(tensor, "graph"):
                    continue  # a part of the graph, which is read where it is called
                self._known[node] = self._constant(tensor, node)
            elif node.op == "output":
                self._output(node)

    def _inputs(self) -> None:
        signature = self.program.graph_signature
        weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        inputs = signature.user_inputs
        if len(inputs) != 1:
            raise PareoError(f"from_torch expects a module of one input; got {len(inputs)}")
        for node in self.program.graph.nodes:
            if node.op != "placeholder":
                continue
            if node.name in weights:
                found: Any = Weight(weights[node.name], tuple(node.meta["val"].shape))
            else:
                constants = signature.inputs_to_lifted_tensor_constants
                if node.name == inputs[0]:
                    found = Value(INPUT, self._shape)
                else:
                    tensor = self.program.constants.get(constants.get(node.name))
                    found = self._constant(tensor, node)
            self._known[node] = found

    def _constant(self, tensor: Any, node: Any) -> Any:
        if hasattr(tensor, "detach"):
            return Known(tensor.detach())
        self._problem("a constant", node)
        return Unknown()

    def is_buffer(self, weight: Weight) -> bool:
        """Whether a weight is a buffer, which is not trained."""
        return weight.name in self.program.graph_signature.inputs_to_buffers.values()

    def _call(self, node: Any, operators: Mapping[str, Any]) -> Any:
        schema = getattr(node.target, "_schema", None)
        name = operator_of(node)
        if name in INLINE:
            return self._inlined(node, operators)
        plain = name.rstrip("_") if not name.startswith("_") else name
        given = _bound(node, schema) if schema else {"args": node.args}
        resolved = {key: self._resolved(value) for key, value in given.items()}
        parts = list(_flat(resolved.values()))
        size = max(
            (getattr(one, "numel", int)() for one in _flat([node.meta.get("val")])), default=0
        )
        try:
            if size > self.batch * ELEMENTS:
                raise Unsupported(f"its result has {size // self.batch:,} elements for each input")
            constant = folded(self, node, name, resolved, parts)
        except Unsupported as error:
            self._problem(f"aten.{name} ({error})", node)
            return Unknown()
        if constant is not None:
            return constant
        if plain not in operators:
            if not any(isinstance(part, Unknown) for part in parts) or schema:
                self._problem(f"aten.{name}" if schema else name, node)
            return self._stand_in(node.meta.get("val"))
        depends = any(isinstance(part, Value | Moved | Padded | Stale) for part in parts)
        if any(isinstance(part, Unknown) for part in parts):
            return self._stand_in(node.meta.get("val")) if depends else Unknown()
        if not depends and plain not in OF_WEIGHTS and any(isinstance(p, Weight) for p in parts):
            self._problem(f"aten.{name} (of weights alone, which are computed from others)", node)
            return Unknown()
        try:
            if any(isinstance(part, Stale) for part in parts):
                raise Unsupported("a view of values that were changed in place")
            resolved = {key: self._repeated(one, plain) for key, one in resolved.items()}
            if any(isinstance(part, Padded) for part in parts) and plain != "conv2d":
                raise Unsupported("of images with zeros around them")
            first, *rest = resolved.items()
            if any(isinstance(part, Moved) for part in parts):
                if plain in self._moved and not isinstance(first[1], Value):
                    found = _called(self._moved[plain], self, first[1], dict(rest))
                else:
                    known = {key: self._as_values(one) for key, one in resolved.items()}
                    first, *rest = known.items()
                    found = _called(operators[plain], self, first[1], dict(rest))
            else:
                found = _called(operators[plain], self, first[1], dict(rest))
            self._check_shape(node, found)
        except (Unsupported, ShapeError) as error:
            self._problem(f"aten.{name} ({error})", node)
            return self._stand_in(node.meta.get("val"))
        except (ValueError, IndexError, KeyError, TypeError, ArithmeticError) as error:
            said = str(error).strip().partition("\n")[0]
            self._problem(f"aten.{name} (what it is given does not fit: {said})", node)
            return self._stand_in(node.meta.get("val"))
        changed = node.args[0] if node.args else None
        if _is_node(changed) and plain in VIEWS:
            self._storage[node] = self._root(changed)
        if _is_node(changed) and name != plain:
            self._replace(changed, node, found)
        return found

    def _inlined(self, node: Any, operators: Mapping[str, Any]) -> Any:
        """The results of a part of the graph that `torch.autocast` or `torch.no_grad` is around."""
        first = INLINE[operator_of(node)]
        inside = getattr(self.program.graph_module, str(node.args[first - 1].target))
        values = [self._resolved(one) for one in node.args[first:]]
        fixed = "grad" in operator_of(node) and node.args[0] is False
        if fixed and any(isinstance(one, Value | Moved) for one in values):
            self._problem("torch.no_grad, through which no gradient flows,", node)
            return [self._stand_in(one) for one in node.meta["val"]]
        given = iter(values)
        for part in inside.graph.nodes:
            self._here = part
            if part.op == "placeholder":
                self._known[part] = next(given)
            elif part.op == "call_function":
                self._known[part] = self._call(part, operators)
            elif part.op == "output":
                return [self._known.get(one, Unknown()) for one in _flat(part.args)]
        return Unknown()

    def _stand_in(self, value: Any) -> Any:
        """What a result that is refused would be, so that all that follows is looked at, too."""
        if isinstance(value, list | tuple):
            return [self._stand_in(one) for one in value]
        shape = tuple(getattr(value, "shape", ()))
        if len(shape) < 2 or shape[0] != self.batch or not _is_float64(value):
            return Unknown()
        name = f"? {len(self.shapes)}"
        self.shapes[name] = shape[1:]
        return Value(name, shape[1:])

    def _as_values(self, given: Any) -> Any:
        """Values whose batch is the first axis, where it can be, of what was in another order."""
        if isinstance(given, list):
            return [self._as_values(one) for one in given]
        return as_value(self, given)

    def _repeated(self, given: Any, operator: str = "") -> Any:
        """What is repeated, by `expand` or for the batch, as a value of its own."""
        if isinstance(given, list):
            return [self._repeated(one, operator) for one in given]
        if isinstance(given, Weight) and given.batched and operator not in BATCHED:
            return self.learned(given)
        wide = isinstance(given, Value) and given.wide and operator not in REPEATED
        return self.widened(given) if wide else given

    def _root(self, node: Any) -> Any:
        return self._storage.get(node, node)

    def _replace(self, changed: Any, node: Any, found: Any) -> None:
        """Note that an operator changed its first argument, and so every view of that."""
        before, root = self._known[changed], self._root(changed)
        self._storage[node] = root
        for other in list(self._known):
            if self._root(other) is root:
                same = self._known[other] == before
                self._known[other] = found if same else Stale()

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._resolved(item) for item in value]
        return self._known[value] if _is_node(value) else value

    @property
    def here(self) -> Any:
        """The node of the exported graph that is being read."""
        return self._here

    def expected(self) -> tuple[int, ...]:
        """The shape that PyTorch's result of the present node has, with the batch."""
        return tuple(self._here.meta["val"].shape)

    def _check_shape(self, node: Any, found: Any) -> None:
        """Refuse a counterpart of another shape than PyTorch's."""
        if isinstance(found, Moved) and found.index.shape != self.expected():
            raise Unsupported(f"its result is {self.expected()}, not {found.index.shape}")
        if not isinstance(found, Value):
            return
        expected = self.expected()
        if expected != (self.batch, *found.seen):
            raise Unsupported(f"its result is {expected}, not {(self.batch, *found.seen)}")
        if not _is_float64(node.meta["val"]):
            raise Unsupported("its result has another dtype than its input")

    def _output(self, node: Any) -> None:
        results = [self._known.get(one, Unknown()) for one in _flat(node.args)]
        if len(results) != 1:
            raise PareoError(
                f"from_torch expects a module with one result in training; got {len(results)}"
            )
        if isinstance(results[0], Moved):
            self._here = next(_flat(node.args))
            try:
                results = [as_value(self, results[0])]
            except Unsupported as error:
                self._problem(f"a result {error}", node)
        if isinstance(results[0], Value):
            self.result = results[0]
        elif not self.problems:
            raise PareoError("from_torch expects a module whose result depends on its input")

    def _problem(self, what: str, node: Any) -> None:
        self.problems.setdefault(what, []).append(place_of(node))

    def constant(self, weight: Weight) -> tuple[float, ...] | None:
        """The numbers of a buffer, which training does not change; None for a parameter."""
        if not self.is_buffer(weight):
            return None
        return tuple(self.tensor(weight.name).flatten().tolist())

    def tensor(self, name: str) -> Any:
        """A parameter or a buffer of the module, also one that is not in its `state_dict`."""
        kept = self.program.state_dict
        return kept[name] if name in kept else self.program.constants[name]

    def as_value(self, x: Any) -> Value:
        """A value, also of a weight that is repeated for every input."""
        x = self._repeated(x)
        if not isinstance(x, Value):
            raise Unsupported("its input is not computed from the module's input")
        return x

    def learned(self, weight: Weight) -> Value:
        """A weight that is repeated for every input of the batch, as a value; made once."""
        if weight.name not in self._learned:
            layer = Learned(weight.seen[1:])
            named = {"w": (weight, "reshaped")}
            self._learned[weight.name] = self.layer(layer, Value(INPUT, self._shape), named)
        found = self._learned[weight.name]
        if found.shape != weight.seen[1:]:
            raise Unsupported(f"the weight {weight.name} has another shape here")
        return found

    def widened(self, x: Value) -> Value:
        """A value in which the elements that PyTorch repeats are repeated."""
        wide, x = x.seen, replace(x, wide=())
        for axis, (size, own) in enumerate(zip(wide, x.seen, strict=True), 1):
            if size != own:
                x = self.layer(Index(LAST[axis] if x.last else axis, (0,) * size), x)
        return x

    def layer(
        self, layer: Layer, x: Value, weights: Mapping[str, tuple[Weight, str]] | None = None
    ) -> Value:
        """A node for a layer; `weights` are its parameters, each with the `how` of `TorchName`."""
        x = self.widened(x)
        buffers = self.program.graph_signature.inputs_to_buffers.values()
        name = self._name(next(iter((weights or {}).values()), None))
        for key, (weight, how) in (weights or {}).items():
            if weight.viewed and how != "reshaped":
                raise Unsupported(f"the weight {weight.name} has another shape here")
            if weight.name in buffers and key not in ("mean", "variance"):
                raise Unsupported(f"the weight {weight.name} is a buffer, which is not trained")
            if any(weight.name == other.name for other in self.names.values()):
                raise Unsupported(f"the weight {weight.name} is used a second time")
            self.names[f"{name}.{key}"] = TorchName(weight.name, how, weight.shape)
        self.nodes[name] = Made(layer, (x.node,), self._here)
        self.shapes[name] = layer.output(x.shape)
        return Value(name, self.shapes[name], x.last)

    def join(self, how: str, parts: list[Value], shape: tuple[int, ...]) -> Value:
        """A node for a join."""
        name = self._name(None)
        self.nodes[name] = Made(how, tuple(part.node for part in parts), self._here)
        self.shapes[name] = shape
        return Value(name, shape, parts[0].last)

    def _name(self, weight: tuple[Weight, str] | None) -> str:
        """The name of a node: that of the module where its weights are, or where it is called."""
        if weight is not None:
            name = prefix_of(weight[0].name)
            if name not in self.nodes and name != INPUT:
                return name
        else:
            path, kind = module_of(self._here)
            whole = kind.startswith("torch.nn.modules.") and path
            name = path if whole else f"{path}.{operator_of(self._here).strip('_')}".lstrip(".")
        taken = {INPUT, *self.nodes, *self._reserved}
        numbers = iter(range(2, len(taken) + 3))
        found = name
        while found in taken:
            found = f"{name}_{next(numbers)}"
        return found

    def needed(self) -> dict[str, Made]:
        """The nodes that the result depends on."""
        assert self.result is not None
        found, left = set(), [self.result.node]
        while left:
            name = left.pop()
            if name not in found and name != INPUT:
                found.add(name)
                left += self.nodes[name].reads
        return {name: made for name, made in self.nodes.items() if name in found}

    def network(self, name: str, chance: bool = True) -> Sequential:
        """The network: layers in sequence, or a graph; without `chance`, dropout does nothing."""
        nodes = self.needed()
        parts: list[tuple[str, Any]] = []
        before = INPUT
        for node, made in nodes.items():
            sure = not chance and isinstance(made.what, Dropout | StochasticDepth)
            parts.append((node, (Identity() if sure else made.what, *made.reads)))
        for node, (what, *reads) in parts:
            if isinstance(what, str) or reads != [before]:
                return Sequential([("", Graph(parts))], self._shape, name)
            before = node
        return Sequential([(node, what) for node, (what, _) in parts], self._shape, name)

    def check(self, module: str) -> None:
        """Refuse a module with anything that has no counterpart, and list all of it."""
        if self.problems:
            listed = "; ".join(
                f"{what} in {some(places)}" for what, places in self.problems.items()
            )
            raise PareoError(f"{module} has operators that pareo does not: {listed}")


def _called(operator: Any, reader: Reader, first: Any, rest: dict[str, Any]) -> Any:
    try:
        inspect.signature(operator).bind(reader, first, **rest)
    except TypeError:
        raise Unsupported(f"with the arguments {', '.join(rest)}") from None
    return operator(reader, first, **rest)


def _is_float64(value: Any) -> bool:
    return str(value.dtype).endswith("float64")


def _is_node(value: Any) -> bool:
    return hasattr(value, "all_input_nodes")


def _bound(node: Any, schema: Any) -> dict[str, Any]:
    """The arguments of a call by name, with the defaults of its schema."""
    found = {}
    for number, argument in enumerate(schema.arguments):
        if number < len(node.args):
            found[argument.name] = node.args[number]
        else:
            found[argument.name] = node.kwargs.get(argument.name, argument.default_value)
    return found


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value
