"""DenseNet-121 (Huang et al., 2016), as in torchvision."""

from pareo.nn.activations import ReLU
from pareo.nn.containers import Append
from pareo.nn.layers import (
    AveragePool,
    Conv,
    Dense,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
)
from pareo.nn.network import Sequential
from pareo.nn.normalisation import BatchNorm

BLOCKS = (6, 12, 24, 16)
GROWTH = 32  # channels that each layer appends
BOTTLENECK = 4 * GROWTH


def _conv(filters: int, size: int, stride: int = 1) -> Conv:
    return Conv(filters, size, stride, padding=size // 2, start="he", bias=False)


def _layer() -> Append:
    """The input, and the channels that a bottleneck of two convolutions computes from it."""
    return Append(
        {
            "norm1": BatchNorm(), "relu1": ReLU(), "conv1": _conv(BOTTLENECK, 1),
            "norm2": BatchNorm(), "relu2": ReLU(), "conv2": _conv(GROWTH, 3),
        }
    )  # fmt: skip


def _transition(channels: int) -> Sequential:
    return Sequential(
        {"norm": BatchNorm(), "relu": ReLU(), "conv": _conv(channels, 1), "pool": AveragePool(2)}
    )


def densenet121(size: int = 224, classes: int = 1000, channels: int = 3) -> Sequential:
    """DenseNet-121.

    >>> densenet121().count()
    7978856
    """
    features: dict[str, Layer] = {
        "conv0": _conv(64, 7, 2),
        "norm0": BatchNorm(),
        "relu0": ReLU(),
        "pool0": MaxPool(3, 2, padding=1),
    }
    width = 64
    for block, count in enumerate(BLOCKS, start=1):
        layers = {f"denselayer{number}": _layer() for number in range(1, count + 1)}
        features[f"denseblock{block}"] = Sequential(layers)
        width += count * GROWTH
        if block < len(BLOCKS):
            width //= 2
            features[f"transition{block}"] = _transition(width)
    features |= {"norm5": BatchNorm(), "relu5": ReLU()}
    network = {
        "features": Sequential(features),
        "avgpool": GlobalAveragePool(),
        "flatten": Flatten(),
        "classifier": Dense(classes, start="fan_in"),
    }
    return Sequential(network, (channels, size, size), "densenet121")
