"""What adapters share: the walk through a network of pareo's layers, and windows of pooling."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pareo.lab.contestants.task import Array
from pareo.nn.layers import AveragePool, Dropout, Layer, MaxPool
from pareo.nn.network import Auxiliary, Branches, Sequential

Apply = Callable[[Layer, Array, Array, Array], Array]  # one layer: layer, w, b, x
Join = Callable[[list[Array]], Array]  # the outputs of branches as one


def without_dropout(network: Sequential) -> Sequential:
    """The network without its Dropout layers, whose masks differ between frameworks.

    >>> from pareo.nn import networks
    >>> without_dropout(networks.googlenet(auxiliary=True)).seeds()
    0
    """
    return Sequential(_kept(network.layers), network.input_shape, network.name)


def _kept(layers: tuple[Layer, ...]) -> list[Layer]:
    kept: list[Layer] = []
    for layer in layers:
        if isinstance(layer, Branches):
            kept.append(Branches(*(_kept(branch.layers) for branch in layer.branches)))
        elif isinstance(layer, Auxiliary):
            kept.append(Auxiliary(without_dropout(layer.head), layer.weight))
        elif isinstance(layer, Sequential):
            kept.append(without_dropout(layer))
        elif not isinstance(layer, Dropout):
            kept.append(layer)
    return kept


def forward(
    network: Sequential,
    parameters: Mapping[str, Array],
    x: Array,
    apply: Apply,
    join: Join,
    path: str = "",
    heads: list[tuple[float, Array]] | None = None,
) -> Array:
    """The output of the network, where `apply` computes one layer and `join` ends branches.

    In training, the weight and the output of each auxiliary head are appended to `heads`.
    """
    for number, layer in enumerate(network.layers):
        here = f"{path}{number}."
        if isinstance(layer, Sequential):
            x = forward(layer, parameters, x, apply, join, here, heads)
        elif isinstance(layer, Branches):
            x = join(
                [
                    forward(branch, parameters, x, apply, join, f"{here}{which}.", heads)
                    for which, branch in enumerate(layer.branches)
                ]
            )
        elif isinstance(layer, Auxiliary):
            if heads is not None:
                out = forward(layer.head, parameters, x, apply, join, here, heads)
                heads.append((layer.weight, out))
        else:
            x = apply(layer, parameters.get(f"{here}w"), parameters.get(f"{here}b"), x)
    return x


def total_loss(
    network: Sequential,
    parameters: Mapping[str, Array],
    x: Array,
    apply: Apply,
    join: Join,
    loss: Callable[[Array], Array],
) -> Array:
    """The loss in training: `loss(output)`, and that of each auxiliary head times its weight."""
    heads: list[tuple[float, Array]] = []
    total = loss(forward(network, parameters, x, apply, join, heads=heads))
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


@dataclass(frozen=True)
class Window:
    """The windows of a pooling layer over one image, for frameworks without `ceil`.

    `padding` is ((top, bottom), (left, right)), enough for the last window. `counts` is the number
    of pixels of the image in each window.
    """

    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    counts: Array

    @classmethod
    def of(cls, layer: MaxPool | AveragePool, image: tuple[int, int]) -> "Window":
        """The windows of a layer over an image of this height and width.

        >>> from pareo.nn import MaxPool
        >>> Window.of(MaxPool(3, 2, ceil=True), (8, 8)).padding
        ((0, 1), (0, 1))
        """
        size = pair(layer.size)
        stride = size if layer.stride is None else pair(layer.stride)
        before = pair(layer.padding)
        outputs = layer.output((1, *image))[1:]
        padding, counts = [], []
        for axis in (0, 1):
            starts = np.arange(outputs[axis]) * stride[axis] - before[axis]
            ends = np.minimum(starts + size[axis], image[axis])
            counts.append(ends - np.maximum(starts, 0))
            padding.append((before[axis], max(0, int(starts[-1]) + size[axis] - image[axis])))
        return cls(size, stride, (padding[0], padding[1]), np.outer(*counts).astype(np.float32))
