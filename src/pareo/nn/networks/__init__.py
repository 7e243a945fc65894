"""Networks by name: those of the papers, and those of today."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pareo.errors import ShapeError
from pareo.nn.layers import Dense
from pareo.nn.network import Sequential
from pareo.nn.networks.convnext import convnext_tiny
from pareo.nn.networks.densenet import densenet121
from pareo.nn.networks.efficientnet import efficientnet_b0
from pareo.nn.networks.lenet import lenet5
from pareo.nn.networks.mobilenet import mobilenet_v2
from pareo.nn.networks.papers import (
    ACTIVATIONS,
    MLP_WIDTHS,
    alexnet,
    googlenet,
    mlp,
    papers_cnn,
)
from pareo.nn.networks.resnet import resnet, resnet_small
from pareo.nn.networks.squeezenet import squeezenet
from pareo.nn.networks.vgg import vgg
from pareo.nn.networks.vit import vit_b_16, vit_tiny_16

# Networks for square images of any size, with any number of channels and classes.
SIZED: dict[str, Callable[..., Sequential]] = {
    "alexnet": alexnet,
    "alexnet-original": partial(alexnet, "original"),
    "googlenet": googlenet,
    "googlenet-auxiliary": partial(googlenet, auxiliary=True),
    "lenet5": lenet5,
    "vgg11": partial(vgg, 11),
    "vgg11-bn": partial(vgg, 11, batch_norm=True),
    "vgg16": partial(vgg, 16),
    "vgg16-bn": partial(vgg, 16, batch_norm=True),
    "resnet8": partial(resnet_small, 8),
    "resnet20": partial(resnet_small, 20),
    "resnet18": partial(resnet, 18),
    "resnet34": partial(resnet, 34),
    "resnet50": partial(resnet, 50),
    "squeezenet1.1": squeezenet,
    "mobilenet-v2": mobilenet_v2,
    "densenet121": densenet121,
    "efficientnet-b0": efficientnet_b0,
    "convnext-tiny": convnext_tiny,
    "vit-tiny-16": vit_tiny_16,
    "vit-b-16": vit_b_16,
}
NETWORKS: dict[str, Callable[[], Sequential]] = {
    "papers-cnn": papers_cnn,
    "mlp-small": lambda: mlp("small"),
    "mlp-medium": lambda: mlp("medium"),
    "mlp-big": lambda: mlp("big"),
    **SIZED,
}


def by_name(name: str) -> Sequential:
    """The network with this name, as on the command line."""
    if name not in NETWORKS:
        raise ShapeError(f"a network is one of {', '.join(NETWORKS)}; got '{name}'")
    return NETWORKS[name]()


def sized(name: str, shape: tuple[int, ...], classes: int) -> Sequential:
    """The network with this name, with as many outputs; one of SIZED for images of this shape.

    >>> sized("googlenet", (3, 64, 64), 5).input_shape
    (3, 64, 64)
    >>> sized("resnet20", (1, 28, 28), 10).count()
    272186
    >>> sized("papers-cnn", (1, 28, 28), 3).classes
    3
    """
    square = len(shape) == 3 and shape[1] == shape[2]
    if name not in SIZED or not square:
        usual = by_name(name)
        return with_outputs(usual, classes) or usual
    return SIZED[name](size=shape[1], classes=classes, channels=shape[0])


def with_outputs(network: Sequential, count: int) -> Sequential | None:
    """The network with as many outputs, if its last layer is dense; None if it is not.

    >>> with_outputs(lenet5(), 4).classes
    4
    """
    if count < 1 or network.classes == count:
        return network
    last = network.layers[-1]
    if not isinstance(last, Dense):
        return None
    layers = zip(network.names, [*network.layers[:-1], replace(last, units=count)], strict=True)
    return Sequential(list(layers), network.input_shape, network.name)


__all__ = [
    "ACTIVATIONS",
    "MLP_WIDTHS",
    "NETWORKS",
    "SIZED",
    "alexnet",
    "by_name",
    "convnext_tiny",
    "densenet121",
    "efficientnet_b0",
    "googlenet",
    "lenet5",
    "mlp",
    "mobilenet_v2",
    "papers_cnn",
    "resnet",
    "resnet_small",
    "sized",
    "squeezenet",
    "vgg",
    "vit_b_16",
    "vit_tiny_16",
    "with_outputs",
]
