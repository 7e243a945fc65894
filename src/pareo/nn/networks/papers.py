"""The networks of the papers."""

from collections.abc import Callable
from typing import Any

from pareo.errors import ShapeError
from pareo.nn.activations import ReLU, Sigmoid, Tanh
from pareo.nn.containers import Branches
from pareo.nn.layers import (
    AveragePool,
    Conv,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool,
    Subsample,
)
from pareo.nn.network import Auxiliary, Sequential
from pareo.nn.normalisation import Lrn

ACTIVATIONS: dict[str, Callable[[], Layer]] = {"relu": ReLU, "sigmoid": Sigmoid, "tanh": Tanh}
MLP_WIDTHS = {"small": 196, "medium": 392, "big": 784}


def papers_cnn() -> Sequential:
    """The first paper's network for MNIST: 2,343 parameters.

    >>> papers_cnn().count()
    2343
    """
    layers = [
        Conv(6, 5),
        Sigmoid(),
        Subsample(4, stride=4),
        Sigmoid(),
        Flatten(),
        Dense(10),
    ]
    return Sequential(layers, (1, 28, 28), "papers-cnn")


def mlp(sizes: str | list[int] | tuple[int, ...], activation: str = "relu") -> Sequential:
    """The fourth paper's networks, 'small', 'medium' or 'big', or any sizes from input to output.

    >>> mlp("small").count(), mlp([784, 1024, 10], activation="sigmoid").count()
    (233054, 814090)
    """
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ShapeError(f"mlp expects an activation of {known}; got '{activation}'")
    if isinstance(sizes, str):
        if sizes not in MLP_WIDTHS:
            raise ShapeError(f"mlp expects small, medium, big or a list of sizes; got '{sizes}'")
        name, width = f"mlp-{sizes}", MLP_WIDTHS[sizes]
        sizes = [784, width, width, width, 10]
    else:
        name = "mlp-" + "-".join(map(str, sizes))
    if len(sizes) < 2 or any(size < 1 for size in sizes):
        raise ShapeError(f"mlp expects at least two sizes, each at least 1; got {list(sizes)}")
    start = "he" if activation == "relu" else "glorot"
    layers: list[Layer] = [Flatten()]
    for width in sizes[1:-1]:
        layers += [Dense(width, start=start), ACTIVATIONS[activation]()]
    layers.append(Dense(sizes[-1]))
    shape = (1, 28, 28) if sizes[0] == 784 else (sizes[0],)
    return Sequential(layers, shape, name)


def alexnet(
    version: str = "2014", size: int = 224, classes: int = 1000, channels: int = 3
) -> Sequential:
    """AlexNet: the one-column version of 2014, or the 'original' with LRN and groups.

    >>> alexnet().count(), alexnet("original").count()
    (61100840, 60965224)
    """
    if version == "2014":
        widths, groups, normalise = (64, 192, 384, 256, 256), 1, False
    elif version == "original":
        widths, groups, normalise = (96, 256, 384, 384, 256), 2, True
    else:
        raise ShapeError(f"alexnet expects '2014' or 'original'; got '{version}'")
    lrn: list[Layer] = [Lrn()] if normalise else []
    layers: list[Layer] = [
        *_conv(widths[0], 11, 4, 2), *lrn, MaxPool(3, 2),
        *_conv(widths[1], 5, 1, 2, groups), *lrn, MaxPool(3, 2),
        *_conv(widths[2], 3, 1, 1),
        *_conv(widths[3], 3, 1, 1, groups),
        *_conv(widths[4], 3, 1, 1, groups), MaxPool(3, 2),
        Flatten(),
        Dropout(0.5), Dense(4096, start="he"), ReLU(),
        Dropout(0.5), Dense(4096, start="he"), ReLU(),
        Dense(classes),
    ]  # fmt: skip
    name = "alexnet" if version == "2014" else "alexnet-original"
    return Sequential(layers, (channels, size, size), name)


def _conv(filters: int, size: int, stride: int = 1, padding: int = 0, groups: int = 1) -> Any:
    return Conv(filters, size, stride, padding, groups, start="he"), ReLU()


def _inception(one: int, three: tuple[int, int], five: tuple[int, int], pool: int) -> Branches:
    """1x1; 1x1 then 3x3; 1x1 then 5x5; pooling then 1x1: in parallel."""
    return Branches(
        [*_conv(one, 1)],
        [*_conv(three[0], 1), *_conv(three[1], 3, 1, 1)],
        [*_conv(five[0], 1), *_conv(five[1], 5, 1, 2)],
        [MaxPool(3, 1, 1), *_conv(pool, 1)],
    )


def _head(size: int, classes: int) -> Auxiliary:
    """One of GoogLeNet's auxiliary heads, on images of a sixteenth of the input's size."""
    pooled = AveragePool(min(5, size // 16), 3)
    layers = [pooled, *_conv(128, 1), Flatten(), Dense(1024, start="he"), ReLU(), Dropout(0.7)]
    return Auxiliary(Sequential([*layers, Dense(classes)]), weight=0.3)


def _last_side(size: int) -> int:
    """The side of GoogLeNet's last images: a convolution and four poolings halve it.

    >>> [_last_side(size) for size in (224, 112, 64)]
    [7, 3, 2]
    """
    side = (size - 1) // 2 + 1
    for _ in range(4):
        side = -(-(side - 3) // 2) + 1  # a window of 3, by 2; the last may lie beyond the edge
    return max(1, side)


def googlenet(
    size: int = 224, classes: int = 1000, auxiliary: bool = False, channels: int = 3
) -> Sequential:
    """GoogLeNet (Inception v1), with or without its two auxiliary heads.

    >>> googlenet().count(), googlenet(auxiliary=True).count()
    (6998552, 13378280)
    >>> [googlenet(size).classes for size in (33, 64, 100, 112)]
    [1000, 1000, 1000, 1000]
    """
    heads = [_head(size, classes)] if auxiliary else []
    layers: list[Layer] = [
        *_conv(64, 7, 2, 3), MaxPool(3, 2, ceil=True), Lrn(),
        *_conv(64, 1), *_conv(192, 3, 1, 1), Lrn(), MaxPool(3, 2, ceil=True),
        _inception(64, (96, 128), (16, 32), 32),
        _inception(128, (128, 192), (32, 96), 64), MaxPool(3, 2, ceil=True),
        _inception(192, (96, 208), (16, 48), 64), *heads,
        _inception(160, (112, 224), (24, 64), 64),
        _inception(128, (128, 256), (24, 64), 64),
        _inception(112, (144, 288), (32, 64), 64), *heads,
        _inception(256, (160, 320), (32, 128), 128), MaxPool(3, 2, ceil=True),
        _inception(256, (160, 320), (32, 128), 128),
        _inception(384, (192, 384), (48, 128), 128),
        AveragePool(_last_side(size)), Flatten(), Dropout(0.4), Dense(classes),
    ]  # fmt: skip
    name = "googlenet-auxiliary" if auxiliary else "googlenet"
    return Sequential(layers, (channels, size, size), name)
