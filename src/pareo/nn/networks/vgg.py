"""VGG (Simonyan and Zisserman, 2014), as in torchvision: with and without batch normalisation."""

from pareo.errors import ShapeError
from pareo.nn.activations import ReLU
from pareo.nn.layers import Conv, Dense, Dropout, Flatten, Layer, MaxPool
from pareo.nn.network import Sequential
from pareo.nn.normalisation import BatchNorm
from pareo.nn.pooling import AdaptiveAveragePool

WIDTHS = (64, 128, 256, 512, 512)
REPEATS = {11: (1, 1, 2, 2, 2), 16: (2, 2, 3, 3, 3)}  # convolutions of each width


def vgg(
    depth: int = 16,
    batch_norm: bool = False,
    size: int = 224,
    classes: int = 1000,
    channels: int = 3,
) -> Sequential:
    """VGG-11 or VGG-16.

    >>> vgg(11).count(), vgg(16).count(), vgg(16, batch_norm=True).count()
    (132863336, 138357544, 138365992)
    """
    if depth not in REPEATS:
        raise ShapeError(f"vgg expects a depth of 11 or 16; got {depth}")
    features: list[Layer] = []
    for width, times in zip(WIDTHS, REPEATS[depth], strict=True):
        for _ in range(times):
            features.append(Conv(width, 3, padding=1, start="he_out"))
            features += [BatchNorm(), ReLU()] if batch_norm else [ReLU()]
        features.append(MaxPool(2))
    start = "normal_0.01"
    classifier = [
        Dense(4096, start), ReLU(), Dropout(0.5),
        Dense(4096, start), ReLU(), Dropout(0.5),
        Dense(classes, start),
    ]  # fmt: skip
    layers = {
        "features": Sequential(features),
        "avgpool": AdaptiveAveragePool(7),
        "flatten": Flatten(),
        "classifier": Sequential(classifier),
    }
    name = f"vgg{depth}-bn" if batch_norm else f"vgg{depth}"
    return Sequential(layers, (channels, size, size), name)
