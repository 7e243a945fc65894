"""Networks: layers in sequence, with an input shape, and their parameters by path."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.nn.containers import Container, Interpreter, run_layer
from pareo.nn.initialise import initialise
from pareo.nn.layers import Context, Layer, Shape
from pareo.notebook import table
from pareo.program import Program, trace
from pareo.program.text import amount
from pareo.seeds import checked_seed
from pareo.spec import Spec

Parameters = dict[str, Any]


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
    names: tuple[str, ...] = ()

    def __init__(
        self, layers: Any, input_shape: Shape | None = None, name: str = "network"
    ) -> None:
        """`layers` is a list, or a dict of layers by name, or a list of pairs (name, layer)."""
        names, found = _named(layers)
        object.__setattr__(self, "layers", found)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "input_shape", None if input_shape is None else tuple(input_shape))
        object.__setattr__(self, "name", name)
        if input_shape is not None:
            self.parameters(tuple(input_shape))  # raises an error if layers do not fit

    @property
    def numbered(self) -> bool:
        """Whether the names of the layers are their numbers."""
        return self.names == tuple(map(str, range(len(self.layers))))

    def children(self, shape: Shape) -> Iterator[tuple[str, Layer, Shape]]:
        for name, layer in zip(self.names, self.layers, strict=True):
            yield name, layer, shape
            shape = layer.output(shape)

    def output(self, shape: Shape) -> Shape:
        for layer in self.layers:
            shape = layer.output(shape)
        return shape

    def seeds(self) -> int:
        return sum(layer.seeds() for layer in self.layers)

    def run(self, parameters: Mapping[str, Any], x: Any, interpreter: Interpreter) -> Any:
        for name, layer in zip(self.names, self.layers, strict=True):
            x = run_layer(layer, name, parameters, x, interpreter)
        return x

    @property
    def inputs(self) -> Shape:
        """The shape of one input."""
        if self.input_shape is None:
            raise ShapeError(
                "this Sequential has no input_shape: a network has one, as in "
                "Sequential([...], input_shape=(1, 28, 28)); only a part of a network has none"
            )
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
        """The number of parameters; the state of layers, which is not trained, does not count."""
        found = self.parameters(self.inputs).values()
        return sum(int(np.prod(p.shape)) for p in found if p.trained)

    @property
    def state(self) -> tuple[str, ...]:
        """The paths of the state of layers: running statistics, which no gradient moves."""
        found = self.parameters(self.inputs).items()
        return tuple(path for path, p in found if not p.trained)

    def __call__(
        self, parameters: Mapping[str, Any], x: Any, training: bool = False, seeds: Any = ()
    ) -> Any:
        """The output (logits) for a batch; on symbols it records, on arrays it runs."""
        return self.apply(parameters, x, Context(training, iter(seeds)))

    def loss(self, parameters: Mapping[str, Any], x: Any, labels: Any, seeds: Any = ()) -> Any:
        """The mean cross-entropy of a batch in training, plus that of auxiliary heads."""
        return self.loss_and_state(parameters, x, labels, seeds)[0]

    def loss_and_state(
        self,
        parameters: Mapping[str, Any],
        x: Any,
        labels: Any,
        seeds: Any = (),
        loss: Callable[[Any, Any], Any] = op.cross_entropy,
        fixed: Collection[str] = (),
    ) -> tuple[Any, dict[str, Any]]:
        """The loss of a batch in training, and the new values of the layers' state by path.

        Layers whose state is `fixed` compute as they do outside of training, and keep it.
        """
        kept = [id(parameters[path]) for path in fixed]
        context = Context(True, iter(seeds), fixed=frozenset(kept))
        total = loss(self.apply(parameters, x, context), labels)
        for weight, logits in context.heads:
            total = op.add(total, op.scale(weight, loss(logits, labels)))
        paths = {id(array): path for path, array in parameters.items()}
        return total, {paths[id(old)]: new for old, new in context.replaced}

    def program(self, batch: int = 1, dtype: Any = "float32") -> Program:
        """The forward pass, traced for a batch size."""
        parameters = {
            path: Spec(p.shape, dtype) for path, p in self.parameters(self.inputs).items()
        }
        images = Spec((batch, *self.inputs), dtype, batch=0)
        return trace(lambda parameters, x: self(parameters, x), parameters, images)

    def summary(self) -> "Summary":
        """A table of layers: output shape, parameters, FLOPs and activation bytes for one input.

        >>> from pareo.nn import Dense, Sequential
        >>> print(Sequential([Dense(2)], input_shape=(4,)).summary())
        layer            output             parameters        FLOPs   activation
        0 Dense 2        (2,)                       10      18 FLOP          8 B
        total                                       10      18 FLOP          8 B
        """
        rows = [("layer", "output", "parameters", "FLOPs", "activation")]
        total = [0, 0, 0]
        shown = {""}
        for path, layer, shape in self.walk(self.inputs):
            label = f"{_below(path, shown)} {layer.label}"
            if isinstance(layer, Container):
                if path not in shown:  # not a container without a name of its own
                    rows.append((label, "", "", "", ""))
                shown.add(path)
                continue
            alone = Sequential([layer], shape)
            numbers = (
                alone.count(),
                alone.program().flops,
                4 * int(np.prod(layer.output(shape))),
            )
            total = [a + b for a, b in zip(total, numbers, strict=True)]
            rows.append((label, str(layer.output(shape)), *_amounts(numbers)))
        rows.append(("total", "", *_amounts(total)))
        return Summary(rows)


class Summary(str):
    """A table of layers as text, which a notebook shows as a table."""

    rows: list[tuple[str, str, str, str, str]]

    def __new__(cls, rows: list[tuple[str, str, str, str, str]]) -> "Summary":
        """The text of rows, of which the first are the heads."""
        widths = [max(16, *(len(row[column]) for row in rows)) for column in (0, 1)]
        made = super().__new__(cls, "\n".join(_row(row, *widths) for row in rows))
        made.rows = rows
        return made

    def _repr_html_(self) -> str:
        """The table, for a notebook."""
        return table(self.rows[0], self.rows[1:], left=2)


def _below(path: str, shown: Collection[str]) -> str:
    """A path without that of the container whose row is above, indented below it."""
    above = path.rpartition(".")[0]
    while above not in shown:
        above = above.rpartition(".")[0]
    return f"{'  ' * (above.count('.') + 1)}{path[len(above) + 1 :]}" if above else path


def _amounts(numbers: Any) -> tuple[str, str, str]:
    return f"{numbers[0]:,}", amount(numbers[1], "FLOP"), amount(numbers[2], "B")


def _row(row: tuple[str, str, str, str, str], label: int, shape: int) -> str:
    numbers = " ".join(f"{number:>12}" for number in row[2:])
    return f"{row[0]:<{label}} {row[1]:<{shape}} {numbers}".rstrip()


@dataclass(frozen=True)
class Auxiliary(Container):
    """An auxiliary classifier that helps the layers before it to learn; its input passes unchanged.

    In training its cross-entropy times `weight` is added to the loss; otherwise it is not computed.
    """

    head: Sequential
    weight: float = 0.3

    def children(self, shape: Shape) -> Iterator[tuple[str, Layer, Shape]]:
        yield "", self.head, shape

    def seeds(self) -> int:
        return self.head.seeds()

    def run(self, parameters: Mapping[str, Any], x: Any, interpreter: Interpreter) -> Any:
        interpreter.head(self.weight, self.head, parameters, x)
        return x


def _named(layers: Any) -> tuple[tuple[str, ...], tuple[Layer, ...]]:
    """The names and the layers of a sequence; names are numbers unless they are given."""
    if isinstance(layers, Mapping):
        pairs = list(layers.items())
    else:
        given = list(layers)
        pairs = [
            entry if isinstance(entry, tuple) and len(entry) == 2 else (str(number), entry)
            for number, entry in enumerate(given)
        ]
    for name, layer in pairs:
        if not isinstance(layer, Layer):
            raise ShapeError(f"Sequential expects layers such as Dense(10); got {layer!r}")
        if not isinstance(name, str) or (name and not all(name.split("."))):
            raise ShapeError(f"Sequential expects names such as 'conv1'; got {name!r}")
    names = [name for name, _ in pairs if name]
    if len(set(names)) != len(names):
        raise ShapeError(f"Sequential expects names that differ from each other; got {names}")
    return tuple(name for name, _ in pairs), tuple(layer for _, layer in pairs)
