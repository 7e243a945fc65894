"""ConvNeXt-Tiny (Liu et al., 2022), as in torchvision."""

from pareo.nn.activations import GELU
from pareo.nn.containers import Residual
from pareo.nn.layers import (
    Conv,
    Dense,
    Flatten,
    GlobalAveragePool,
    Layer,
    Scale,
    StochasticDepth,
)
from pareo.nn.network import Sequential
from pareo.nn.normalisation import LayerNorm

WIDTHS = (96, 192, 384, 768)
BLOCKS = (3, 3, 9, 3)
DEPTH_RATE = 0.1  # how often the last block is left out in training; earlier ones less often
START = "normal_0.02"


def _norm() -> LayerNorm:
    return LayerNorm(axis=1, epsilon=1e-6)


def _block(width: int, rate: float) -> Residual:
    """A depthwise convolution, then two linear layers on the channels of each pixel.

    The linear layers are 1x1 convolutions here, so that images keep their layout; their names are
    torchvision's.
    """
    inside = {
        "0": Conv(width, 7, padding=3, groups=width, start=START),
        "2": _norm(),
        "3": Conv(4 * width, 1, start=START),
        "4": GELU(),
        "5": Conv(width, 1, start=START),
    }
    body: dict[str, Layer] = {"block": Sequential(inside), "layer_scale": Scale("small")}
    if rate:
        body["stochastic_depth"] = StochasticDepth(rate)
    return Residual(body)


def convnext_tiny(size: int = 224, classes: int = 1000, channels: int = 3) -> Sequential:
    """ConvNeXt-Tiny.

    >>> convnext_tiny().count()
    28589128
    """
    features: list[Layer] = [Sequential([Conv(WIDTHS[0], 4, 4, start=START), _norm()])]
    done, last = 0, sum(BLOCKS) - 1
    for number, (width, count) in enumerate(zip(WIDTHS, BLOCKS, strict=True)):
        if number:
            features.append(Sequential([_norm(), Conv(width, 2, 2, start=START)]))
        rates = [DEPTH_RATE * (done + block) / last for block in range(count)]
        features.append(Sequential([_block(width, rate) for rate in rates]))
        done += count
    layers = {
        "features": Sequential(features),
        "avgpool": GlobalAveragePool(),
        "classifier": Sequential([_norm(), Flatten(), Dense(classes, START)]),
    }
    return Sequential(layers, (channels, size, size), "convnext-tiny")
