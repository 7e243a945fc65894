"""Networks: layers in sequence or in parallel branches, and their parameters by path."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.nn.initialise import initialise
from pareo.nn.layers import Context, Layer, Parameter, Shape
from pareo.program import Program, trace
from pareo.program.text import amount
from pareo.seeds import checked_seed
from pareo.spec import Spec

Parameters = dict[str, Any]


def _below(parameters: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The parameters whose path starts with a name, with that name removed."""
    start = f"{name}."
    return {path[len(start) :]: a for path, a in parameters.items() if path.startswith(start)}


class Container(Layer):
    """A layer made of layers."""

    @abstractmethod
    def walk(self, shape: Shape, prefix: str = "") -> Iterator[tuple[str, Layer, Shape]]:
        """Every layer at any depth, with its path and its input shape."""


@dataclass(frozen=True)
class Sequential(Container):
    """Layers in sequence; with an input shape, a network that can be trained.

    >>> from pareo.nn import Dense, ReLU, Sequential
    >>> network = Sequential([Dense(3), ReLU(), Dense(2)], input_shape=(4,))
    >>> network.count()
    23
    """

    layers: tuple[Layer, ...]
    input_shape: Shape | None = None
    name: str = "network"

    def __init__(
        self, layers: Any, input_shape: Shape | None = None, name: str = "network"
    ) -> None:
        object.__setattr__(self, "layers", tuple(layers))
        object.__setattr__(self, "input_shape", None if input_shape is None else tuple(input_shape))
        object.__setattr__(self, "name", name)
        for layer in self.layers:
            if not isinstance(layer, Layer):
                raise ShapeError(f"Sequential expects layers such as Dense(10); got {layer!r}")
        if input_shape is not None:
            self.parameters(tuple(input_shape))  # raises an error if layers do not fit

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        found = {}
        for path, layer, incoming in self.walk(shape):
            if not isinstance(layer, Container):
                for name, parameter in layer.parameters(incoming).items():
                    found[f"{path}.{name}"] = parameter
        return found

    def walk(self, shape: Shape, prefix: str = "") -> Iterator[tuple[str, Layer, Shape]]:
        """Every layer at any depth, with its path and its input shape."""
        for number, layer in enumerate(self.layers):
            path = f"{prefix}{number}"
            yield path, layer, shape
            if isinstance(layer, Container):
                yield from layer.walk(shape, f"{path}.")
            shape = layer.output(shape)

    def output(self, shape: Shape) -> Shape:
        for layer in self.layers:
            shape = layer.output(shape)
        return shape

    def seeds(self) -> int:
        return sum(layer.seeds() for layer in self.layers)

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        for number, layer in enumerate(self.layers):
            x = layer.apply(_below(parameters, str(number)), x, context)
        return x

    @property
    def inputs(self) -> Shape:
        """The shape of one input."""
        if self.input_shape is None:
            raise ShapeError("this Sequential is part of a network: it has no input_shape")
        return self.input_shape

    @property
    def classes(self) -> int:
        """The number of outputs for one input."""
        return self.output(self.inputs)[-1]

    def initialise(self, seed: int = 0, dtype: Any = "float32") -> Parameters:
        """New parameters by path; the same seed gives the same parameters."""
        seed = checked_seed("initialise", seed)
        return {
            path: initialise(p.start, p.shape, p.fans, seed, path, dtype)
            for path, p in self.parameters(self.inputs).items()
        }

    def count(self) -> int:
        """The number of parameters."""
        return sum(int(np.prod(p.shape)) for p in self.parameters(self.inputs).values())

    def __call__(
        self, parameters: Mapping[str, Any], x: Any, training: bool = False, seeds: Any = ()
    ) -> Any:
        """The output (logits) for a batch; on symbols it records, on arrays it runs."""
        return self.apply(parameters, x, Context(training, iter(seeds)))

    def loss(self, parameters: Mapping[str, Any], x: Any, labels: Any, seeds: Any = ()) -> Any:
        """The mean cross-entropy of a batch in training, plus that of auxiliary heads."""
        context = Context(True, iter(seeds))
        total = op.cross_entropy(self.apply(parameters, x, context), labels)
        for weight, logits in context.heads:
            total = op.add(total, op.scale(weight, op.cross_entropy(logits, labels)))
        return total

    def program(self, batch: int = 1, dtype: Any = "float32") -> Program:
        """The forward pass, traced for a batch size."""
        parameters = {
            path: Spec(p.shape, dtype) for path, p in self.parameters(self.inputs).items()
        }
        images = Spec((batch, *self.inputs), dtype, batch=0)
        return trace(lambda parameters, x: self(parameters, x), parameters, images)

    def summary(self) -> str:
        """A table of layers: output shape, parameters, FLOPs and activation bytes for one input.

        >>> from pareo.nn import Dense, Sequential
        >>> print(Sequential([Dense(2)], input_shape=(4,)).summary())
        layer            output             parameters        FLOPs   activation
        0 Dense 2        (2,)                       10      18 FLOP          8 B
        total                                       10      18 FLOP          8 B
        """
        rows = [_row("layer", "output", "parameters", "FLOPs", "activation")]
        total = [0, 0, 0]
        for path, layer, shape in self.walk(self.inputs):
            depth = path.count(".")
            if isinstance(layer, Container):
                rows.append(_row(f"{'  ' * depth}{path} {layer.label}", "", "", "", ""))
                continue
            alone = Sequential([layer], shape)
            numbers = (
                alone.count(),
                alone.program().flops,
                4 * int(np.prod(layer.output(shape))),
            )
            total = [a + b for a, b in zip(total, numbers, strict=True)]
            label = f"{'  ' * depth}{path} {layer.label}"
            rows.append(_row(label, str(layer.output(shape)), *_amounts(numbers)))
        rows.append(_row("total", "", *_amounts(total)))
        return "\n".join(rows)


def _amounts(numbers: Any) -> tuple[str, str, str]:
    return f"{numbers[0]:,}", amount(numbers[1], "FLOP"), amount(numbers[2], "B")


def _row(label: str, shape: str, parameters: str, flops: str, activation: str) -> str:
    return f"{label:<16} {shape:<16} {parameters:>12} {flops:>12} {activation:>12}".rstrip()


@dataclass(frozen=True)
class Auxiliary(Container):
    """An auxiliary classifier that helps the layers before it to learn; its input passes unchanged.

    In training its cross-entropy times `weight` is added to the loss; otherwise it is not computed.
    """

    head: Sequential
    weight: float = 0.3

    def walk(self, shape: Shape, prefix: str = "") -> Iterator[tuple[str, Layer, Shape]]:
        """Every layer of the head."""
        yield from self.head.walk(shape, prefix)

    def seeds(self) -> int:
        return self.head.seeds()

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        if context.training:
            context.heads.append((self.weight, self.head.apply(parameters, x, context)))
        return x


@dataclass(frozen=True)
class Branches(Container):
    """Parallel branches on the same input, with outputs concatenated along the channels."""

    branches: tuple[Sequential, ...] = field(default=())

    def __init__(self, *branches: Any) -> None:
        made = tuple(b if isinstance(b, Sequential) else Sequential(b) for b in branches)
        object.__setattr__(self, "branches", made)

    def walk(self, shape: Shape, prefix: str = "") -> Iterator[tuple[str, Layer, Shape]]:
        """Every layer of every branch."""
        for number, branch in enumerate(self.branches):
            yield from branch.walk(shape, f"{prefix}{number}.")

    def output(self, shape: Shape) -> Shape:
        shapes = [branch.output(shape) for branch in self.branches]
        if any(other[1:] != shapes[0][1:] for other in shapes):
            raise ShapeError(f"Branches expects outputs that differ only in channels; got {shapes}")
        return (sum(s[0] for s in shapes), *shapes[0][1:])

    def seeds(self) -> int:
        return sum(branch.seeds() for branch in self.branches)

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        outputs = [
            branch.apply(_below(parameters, str(number)), x, context)
            for number, branch in enumerate(self.branches)
        ]
        return op.concat(outputs, axis=1)
