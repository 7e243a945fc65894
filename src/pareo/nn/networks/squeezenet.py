"""SqueezeNet 1.1 (Iandola et al., 2016), as in torchvision."""

from pareo.nn.activations import ReLU
from pareo.nn.containers import Branches
from pareo.nn.layers import Conv, Dropout, Flatten, GlobalAveragePool, Layer, MaxPool
from pareo.nn.network import Sequential


def _fire(squeezed: int, expanded: int) -> Sequential:
    """A 1x1 convolution to few channels, then 1x1 and 3x3 convolutions side by side."""
    start = "he_uniform"
    expand = Branches(
        {"expand1x1": Conv(expanded, 1, start=start), "expand1x1_activation": ReLU()},
        {"expand3x3": Conv(expanded, 3, padding=1, start=start), "expand3x3_activation": ReLU()},
    )
    return Sequential(
        [
            ("squeeze", Conv(squeezed, 1, start=start)),
            ("squeeze_activation", ReLU()),
            ("", expand),
        ]
    )


def squeezenet(size: int = 224, classes: int = 1000, channels: int = 3) -> Sequential:
    """SqueezeNet 1.1.

    >>> squeezenet().count()
    1235496
    """
    features: list[Layer] = [
        Conv(64, 3, 2, start="he_uniform"), ReLU(), MaxPool(3, 2, ceil=True),
        _fire(16, 64), _fire(16, 64), MaxPool(3, 2, ceil=True),
        _fire(32, 128), _fire(32, 128), MaxPool(3, 2, ceil=True),
        _fire(48, 192), _fire(48, 192), _fire(64, 256), _fire(64, 256),
    ]  # fmt: skip
    classifier: list[Layer] = [
        Dropout(0.5), Conv(classes, 1, start="normal_0.01"), ReLU(), GlobalAveragePool(),
    ]  # fmt: skip
    layers = {
        "features": Sequential(features),
        "classifier": Sequential(classifier),
        "flatten": Flatten(),
    }
    return Sequential(layers, (channels, size, size), "squeezenet1.1")
