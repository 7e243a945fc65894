"""Networks computed by the functions of a framework, one for each layer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pareo.array import Array
from pareo.nn.containers import Container
from pareo.nn.layers import Layer
from pareo.nn.network import Sequential
from pareo.nn.normalisation import BatchNorm, GroupNorm, LayerNorm, Lrn, Normalise
from pareo.nn.shapes import Index, Pad, Part, Permute, Reshape
from pareo.nn.tables import FixedProduct, FixedSum, Mix, TableProduct, TableSum
from pareo.nn.tokens import Attention, ClassToken, FirstToken, Learned, PositionEmbedding, Tokens

# Layers that each framework computes in a function of their own.
NORMALISATIONS = (BatchNorm, GroupNorm, LayerNorm, Lrn, Normalise)
SHAPES = (Index, Mix, Pad, Part, Permute, Reshape)
TABLES = (FixedProduct, FixedSum, TableProduct, TableSum)
PRODUCTS = (FixedProduct, TableProduct)  # those of them that multiply
TOKENS = (Attention, ClassToken, FirstToken, Learned, PositionEmbedding, Tokens)

Apply = Callable[[Layer, Mapping[str, Array], Array], Array]  # one layer: layer, parameters, x
Join = Callable[[list[Array]], Array]  # the outputs of branches as one


@dataclass
class Calls:
    """An interpreter (`pareo.nn.containers.Interpreter`) made of a framework's functions.

    In training, the weight and the output of each auxiliary head are appended to `heads`.
    """

    apply: Apply
    joins: Mapping[str, Join]
    heads: list[tuple[float, Array]] | None = None

    def layer(self, layer: Layer, parameters: Mapping[str, Array], x: Array) -> Array:
        """The output of one layer."""
        return self.apply(layer, parameters, x)

    def join(self, how: str, parts: Sequence[Array]) -> Array:
        """Several results as one."""
        return self.joins[how](list(parts))

    def head(
        self, weight: float, head: Container, parameters: Mapping[str, Array], x: Array
    ) -> None:
        """Compute an auxiliary head, in training."""
        if self.heads is not None:
            self.heads.append((weight, head.run(parameters, x, self)))


def total_loss(
    network: Sequential,
    parameters: Mapping[str, Array],
    x: Array,
    apply: Apply,
    joins: Mapping[str, Join],
    loss: Callable[[Array], Array],
) -> Array:
    """The loss in training: `loss(output)`, and that of each auxiliary head times its weight."""
    heads: list[tuple[float, Array]] = []
    total = loss(network.run(parameters, x, Calls(apply, joins, heads)))
    for weight, out in heads:
        total = total + weight * loss(out)
    return total


def unknown(layer: Layer) -> TypeError:
    """The error of an adapter that lacks a kind of layer."""
    return TypeError(f"this adapter has no {layer!r}")


def pair(value: int | Sequence[int]) -> tuple[int, int]:
    """A size along height and width.

    >>> pair(3), pair((3, 5))
    ((3, 3), (3, 5))
    """
    height, width = (value, value) if isinstance(value, int) else value
    return height, width
