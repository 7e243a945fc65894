"""Containers: layers made of layers, in sequence, in parallel, or around their own input.

A container passes every layer inside it to an interpreter. pareo's own interpreter calls `op.*`;
those of the lab's contestants call another framework. So the structure of networks is defined once.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.nn.layers import Context, Identity, Layer, Parameter, Shape


class Interpreter(Protocol):
    """Computes the layers of a network, and joins the results of branches."""

    def layer(self, layer: Layer, parameters: Mapping[str, Any], x: Any) -> Any:
        """The output of one layer that is not a container."""

    def join(self, how: str, parts: Sequence[Any]) -> Any:
        """Several results as one: by 'concat' (of channels), 'add', 'multiply' or 'matmul'."""

    def head(self, weight: float, head: "Container", parameters: Mapping[str, Any], x: Any) -> None:
        """Take note of an auxiliary head, which counts in training only."""


@dataclass
class OwnOperators:
    """The interpreter that computes with pareo's operators."""

    context: Context

    def layer(self, layer: Layer, parameters: Mapping[str, Any], x: Any) -> Any:
        """Apply the layer."""
        return layer.apply(parameters, x, self.context)

    def join(self, how: str, parts: Sequence[Any]) -> Any:
        """Concatenate, add or multiply, by element or as matrices along the last two axes."""
        if how == "concat":
            return op.concat(list(parts), axis=1)
        if how == "matmul":
            return op.dot(*parts)
        joined = parts[0]
        for part in parts[1:]:
            joined = op.add(joined, part) if how == "add" else op.hadamard(joined, part)
        return joined

    def head(self, weight: float, head: "Container", parameters: Mapping[str, Any], x: Any) -> None:
        """Compute the head in training."""
        if self.context.training:
            self.context.heads.append((weight, head.run(parameters, x, self)))


def below(parameters: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The parameters whose path starts with a name, with that name removed; all for no name."""
    if not name:
        return dict(parameters)
    start = f"{name}."
    return {path[len(start) :]: a for path, a in parameters.items() if path.startswith(start)}


def joined_path(prefix: str, name: str) -> str:
    """A name below a prefix, which ends with a dot or is empty; no name adds nothing."""
    return f"{prefix}{name}" if name else prefix[:-1]


class Container(Layer):
    """A layer made of layers."""

    @abstractmethod
    def children(self, shape: Shape) -> Iterator[tuple[str, Layer, Shape]]:
        """The layers directly inside, with their names and input shapes.

        A layer without a name adds nothing to the paths of what is inside it.
        """

    @abstractmethod
    def run(self, parameters: Mapping[str, Any], x: Any, interpreter: Interpreter) -> Any:
        """The output for a batch, with every layer and join computed by an interpreter."""

    def walk(self, shape: Shape, prefix: str = "") -> Iterator[tuple[str, Layer, Shape]]:
        """Every layer at any depth, with its path and its input shape."""
        for name, layer, incoming in self.children(shape):
            path = joined_path(prefix, name)
            yield path, layer, incoming
            if isinstance(layer, Container):
                yield from layer.walk(incoming, f"{path}." if path else "")

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        found: dict[str, Parameter] = {}
        for path, layer, incoming in self.walk(shape):
            if isinstance(layer, Container):
                continue
            for name, parameter in layer.parameters(incoming).items():
                full = f"{path}.{name}" if path else name
                if full in found:
                    raise ShapeError(f"two parameters of a network have the path {full}")
                found[full] = parameter
        return found

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return self.run(parameters, x, OwnOperators(context))


def run_layer(
    layer: Layer, name: str, parameters: Mapping[str, Any], x: Any, interpreter: Interpreter
) -> Any:
    """The output of a layer inside a container."""
    own = below(parameters, name)
    if isinstance(layer, Container):
        return layer.run(own, x, interpreter)
    return interpreter.layer(layer, own, x)


def joined_shape(kind: str, how: str, shapes: Sequence[Shape]) -> Shape:
    """The shape of several results as one."""
    if len({len(shape) for shape in shapes}) > 1:  # broadcasting would mistake axes for the batch
        raise ShapeError(f"{kind} expects outputs with the same number of axes; got {shapes}")
    if how == "concat":
        if any(other[1:] != shapes[0][1:] for other in shapes):
            raise ShapeError(f"{kind} expects outputs that differ only in channels; got {shapes}")
        return (sum(s[0] for s in shapes), *shapes[0][1:])
    if how == "matmul":
        left, right = shapes
        if len(left) < 2 or left[:-2] != right[:-2] or left[-1] != right[-2]:
            raise ShapeError(f"{kind} expects matrices (..., m, k) and (..., k, n); got {shapes}")
        return (*left[:-1], right[-1])
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise ShapeError(f"{kind} expects outputs of one shape; got {shapes}") from None


@dataclass(frozen=True)
class _Parallel(Container):
    """Branches on the same input, whose outputs are joined.

    A branch has its number in the paths of its parameters, unless its layers have names.
    """

    join: ClassVar[str]
    branches: tuple[Container, ...] = ()

    def __init__(self, *branches: Any) -> None:
        from pareo.nn.network import Sequential

        if not branches:
            raise ShapeError(f"{type(self).__name__} expects at least one branch")
        made = tuple(
            b if isinstance(b, Sequential) else Sequential([b] if isinstance(b, Layer) else b)
            for b in branches
        )
        object.__setattr__(self, "branches", made)

    def children(self, shape: Shape) -> Iterator[tuple[str, Layer, Shape]]:
        for name, branch in self._named():
            yield name, branch, shape

    def _named(self) -> Iterator[tuple[str, Container]]:
        for number, branch in enumerate(self.branches):
            yield (str(number) if getattr(branch, "numbered", True) else ""), branch

    def walk(self, shape: Shape, prefix: str = "") -> Iterator[tuple[str, Layer, Shape]]:
        """Every layer of every branch; the branches themselves have no entry."""
        for name, branch in self._named():
            yield from branch.walk(shape, f"{prefix}{name}." if name else prefix)

    def output(self, shape: Shape) -> Shape:
        shapes = [branch.output(shape) for branch in self.branches]
        return joined_shape(type(self).__name__, self.join, shapes)

    def seeds(self) -> int:
        return sum(branch.seeds() for branch in self.branches)

    def run(self, parameters: Mapping[str, Any], x: Any, interpreter: Interpreter) -> Any:
        outputs = [
            branch.run(below(parameters, name), x, interpreter) for name, branch in self._named()
        ]
        return interpreter.join(self.join, outputs)


class Branches(_Parallel):
    """Parallel branches on the same input, with outputs concatenated along the channels."""

    join = "concat"


class Add(_Parallel):
    """Parallel branches on the same input, with outputs added."""

    join = "add"


class Multiply(_Parallel):
    """Parallel branches on the same input, with outputs multiplied."""

    join = "multiply"


@dataclass(frozen=True)
class _Skip(Container):
    """A body, whose output is joined with its own input."""

    join: ClassVar[str]
    body: Container
    shortcut: Layer | None = None
    activation: Layer | None = None
    shortcut_name: str = "shortcut"

    def __init__(
        self,
        body: Any,
        shortcut: Any = None,
        activation: Layer | None = None,
        shortcut_name: str = "shortcut",
    ) -> None:
        from pareo.nn.network import Sequential

        def made(layers: Any) -> Any:
            return layers if isinstance(layers, Layer) else Sequential(layers)

        own = made(body)
        object.__setattr__(self, "body", own if isinstance(own, Container) else Sequential([own]))
        object.__setattr__(self, "shortcut", None if shortcut is None else made(shortcut))
        object.__setattr__(self, "activation", activation)
        object.__setattr__(self, "shortcut_name", shortcut_name)

    def children(self, shape: Shape) -> Iterator[tuple[str, Layer, Shape]]:
        yield "", self.body, shape
        if self.shortcut is not None:
            yield self.shortcut_name, self.shortcut, shape
        if self.activation is not None:
            yield "activation", self.activation, self._joined(shape)

    def _joined(self, shape: Shape) -> Shape:
        beside = shape if self.shortcut is None else self.shortcut.output(shape)
        return joined_shape(type(self).__name__, self.join, [beside, self.body.output(shape)])

    def output(self, shape: Shape) -> Shape:
        found = self._joined(shape)
        return found if self.activation is None else self.activation.output(found)

    def seeds(self) -> int:
        others = [layer for layer in (self.shortcut, self.activation) if layer is not None]
        return self.body.seeds() + sum(layer.seeds() for layer in others)

    def run(self, parameters: Mapping[str, Any], x: Any, interpreter: Interpreter) -> Any:
        inside = self.body.run(parameters, x, interpreter)
        beside = x
        if self.shortcut is not None:
            beside = run_layer(self.shortcut, self.shortcut_name, parameters, x, interpreter)
        joined = interpreter.join(self.join, [beside, inside])
        if self.activation is None:
            return joined
        return run_layer(self.activation, "activation", parameters, joined, interpreter)


class Residual(_Skip):
    """x + body(x), or shortcut(x) + body(x), and then an activation.

    The paths of parameters are those of the body, and those of the shortcut below `shortcut_name`.

    >>> from pareo.nn import Dense, ReLU, Residual, Sequential
    >>> block = Residual([Dense(4), ReLU(), Dense(4)], activation=ReLU())
    >>> sorted(Sequential([block], input_shape=(4,)).initialise())
    ['0.0.b', '0.0.w', '0.2.b', '0.2.w']
    """

    join = "add"


class Gate(_Skip):
    """x * body(x), as in squeeze and excitation; the output of the body may be broadcast."""

    join = "multiply"


class Append(_Skip):
    """x and body(x), concatenated along the channels, as in DenseNet."""

    join = "concat"


__all__ = ["Add", "Append", "Branches", "Container", "Gate", "Identity", "Multiply", "Residual"]
