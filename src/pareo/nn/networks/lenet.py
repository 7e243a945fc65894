"""LeNet-5 (LeCun et al., 1998), with tanh and average pooling."""

from pareo.nn.activations import Tanh
from pareo.nn.layers import AveragePool, Conv, Dense, Flatten
from pareo.nn.network import Sequential


def lenet5(size: int = 28, classes: int = 10, channels: int = 1) -> Sequential:
    """LeNet-5, for images that are padded by two pixels on each side.

    Layers have the names of the paper. Unlike there, C3 is connected to every map of S2, and the
    output is a dense layer.

    >>> lenet5().count()
    61706
    """
    layers = {
        "c1": Conv(6, 5, padding=2), "tanh1": Tanh(), "s2": AveragePool(2),
        "c3": Conv(16, 5), "tanh3": Tanh(), "s4": AveragePool(2),
        "flatten": Flatten(),
        "c5": Dense(120), "tanh5": Tanh(),
        "f6": Dense(84), "tanh6": Tanh(),
        "output": Dense(classes),
    }  # fmt: skip
    return Sequential(layers, (channels, size, size), "lenet5")
