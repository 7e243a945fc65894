"""MobileNetV2 (Sandler et al., 2018), as in torchvision."""

from pareo.nn.activations import Clip
from pareo.nn.containers import Residual
from pareo.nn.layers import Conv, Dense, Dropout, Flatten, GlobalAveragePool, Layer
from pareo.nn.network import Sequential
from pareo.nn.normalisation import BatchNorm

# Expansion, output channels, blocks, stride of the first block.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _conv(filters: int, size: int, stride: int = 1, groups: int = 1) -> Conv:
    return Conv(filters, size, stride, size // 2, groups, start="he_out", bias=False)


def _active(conv: Conv) -> Sequential:
    return Sequential([conv, BatchNorm(), Clip(0, 6)])


def _inverted_residual(incoming: int, outgoing: int, stride: int, expansion: int) -> Layer:
    """Expand by a 1x1 convolution, convolve each channel by itself, and project to few channels."""
    hidden = incoming * expansion
    inside: list[Layer] = [_active(_conv(hidden, 1))] if expansion != 1 else []
    inside += [_active(_conv(hidden, 3, stride, hidden)), _conv(outgoing, 1), BatchNorm()]
    body = Sequential({"conv": Sequential(inside)})
    return Residual(body) if stride == 1 and incoming == outgoing else body


def mobilenet_v2(size: int = 224, classes: int = 1000, channels: int = 3) -> Sequential:
    """MobileNetV2, of width 1.

    >>> mobilenet_v2().count()
    3504872
    """
    features: list[Layer] = [_active(_conv(32, 3, 2))]
    incoming = 32
    for expansion, outgoing, count, stride in STAGES:
        for number in range(count):
            step = stride if number == 0 else 1
            features.append(_inverted_residual(incoming, outgoing, step, expansion))
            incoming = outgoing
    features.append(_active(_conv(1280, 1)))
    layers = {
        "features": Sequential(features),
        "avgpool": GlobalAveragePool(),
        "flatten": Flatten(),
        "classifier": Sequential({"0": Dropout(0.2), "1": Dense(classes, start="normal_0.01")}),
    }
    return Sequential(layers, (channels, size, size), "mobilenet-v2")
