"""EfficientNet-B0 (Tan and Le, 2019), as in torchvision."""

from pareo.nn.activations import Sigmoid, SiLU
from pareo.nn.containers import Gate, Residual
from pareo.nn.layers import (
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    Layer,
    StochasticDepth,
)
from pareo.nn.network import Sequential
from pareo.nn.normalisation import BatchNorm

# Expansion, size of the filters, stride of the first block, output channels, blocks.
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
BLOCKS = sum(stage[-1] for stage in STAGES)
DEPTH_RATE = 0.2  # how often the last block is left out in training; earlier ones less often


def _conv(filters: int, size: int, stride: int = 1, groups: int = 1) -> Conv:
    return Conv(filters, size, stride, size // 2, groups, start="he_out", bias=False)


def _active(conv: Conv) -> Sequential:
    return Sequential([conv, BatchNorm(), SiLU()])


def _squeeze_and_excite(channels: int, squeezed: int) -> Gate:
    """A factor for each channel, computed from the means of all channels."""
    return Gate(
        {
            "avgpool": GlobalAveragePool(),
            "fc1": Conv(squeezed, 1, start="he_out"),
            "activation": SiLU(),
            "fc2": Conv(channels, 1, start="he_out"),
            "scale_activation": Sigmoid(),
        }
    )


def _block(
    expansion: int, size: int, stride: int, incoming: int, outgoing: int, rate: float
) -> Layer:
    """An inverted residual with squeeze and excitation."""
    hidden = incoming * expansion
    inside: list[Layer] = [_active(_conv(hidden, 1))] if expansion != 1 else []
    inside += [
        _active(_conv(hidden, size, stride, hidden)),
        _squeeze_and_excite(hidden, incoming // 4),
        Sequential([_conv(outgoing, 1), BatchNorm()]),
    ]
    body: dict[str, Layer] = {"block": Sequential(inside)}
    if stride != 1 or incoming != outgoing:
        return Sequential(body)
    return Residual(body | {"stochastic_depth": StochasticDepth(rate)})


def efficientnet_b0(size: int = 224, classes: int = 1000, channels: int = 3) -> Sequential:
    """EfficientNet-B0.

    >>> efficientnet_b0().count()
    5288548
    """
    features: list[Layer] = [_active(_conv(32, 3, 2))]
    incoming, done = 32, 0
    for expansion, window, stride, outgoing, count in STAGES:
        stage = []
        for number in range(count):
            step = stride if number == 0 else 1
            rate = DEPTH_RATE * done / BLOCKS
            stage.append(_block(expansion, window, step, incoming, outgoing, rate))
            incoming, done = outgoing, done + 1
        features.append(Sequential(stage))
    features.append(_active(_conv(1280, 1)))
    classifier = {"0": Dropout(0.2), "1": Dense(classes, start="fan_out_uniform")}
    layers = {
        "features": Sequential(features),
        "avgpool": GlobalAveragePool(),
        "flatten": Flatten(),
        "classifier": Sequential(classifier),
    }
    return Sequential(layers, (channels, size, size), "efficientnet-b0")
