"""Residual networks (He et al., 2015): those for ImageNet as in torchvision, and small ones."""

from pareo.errors import ShapeError
from pareo.nn.activations import ReLU
from pareo.nn.containers import Residual
from pareo.nn.layers import Conv, Dense, Flatten, GlobalAveragePool, Layer, MaxPool
from pareo.nn.network import Sequential
from pareo.nn.normalisation import BatchNorm

# Blocks in each of the four stages, and whether a block is a bottleneck of three convolutions.
DEPTHS = {18: ((2, 2, 2, 2), False), 34: ((3, 4, 6, 3), False), 50: ((3, 4, 6, 3), True)}


def _conv(filters: int, size: int, stride: int = 1) -> Conv:
    return Conv(filters, size, stride, padding=size // 2, start="he_out", bias=False)


def _block(incoming: int, width: int, stride: int, bottleneck: bool) -> tuple[Residual, int]:
    """Two convolutions, or a bottleneck of three, and the input added; and its channels."""
    if bottleneck:
        convolutions = [_conv(width, 1), _conv(width, 3, stride), _conv(4 * width, 1)]
    else:
        convolutions = [_conv(width, 3, stride), _conv(width, 3)]
    body: dict[str, Layer] = {}
    for number, conv in enumerate(convolutions, start=1):
        body |= {f"conv{number}": conv, f"bn{number}": BatchNorm(), f"relu{number}": ReLU()}
    del body[f"relu{len(convolutions)}"]  # the last comes after the addition
    channels = convolutions[-1].filters
    shortcut = None
    if stride != 1 or channels != incoming:
        shortcut = [_conv(channels, 1, stride), BatchNorm()]
    return Residual(body, shortcut, ReLU(), shortcut_name="downsample"), channels


def _stages(
    incoming: int, widths: tuple[int, ...], blocks: tuple[int, ...], bottleneck: bool
) -> dict[str, Layer]:
    """Stages `layer1`, `layer2`, ...; all but the first halve the image in their first block."""
    stages: dict[str, Layer] = {}
    for stage, (width, count) in enumerate(zip(widths, blocks, strict=True), start=1):
        made = []
        for number in range(count):
            stride = 2 if stage > 1 and number == 0 else 1
            block, incoming = _block(incoming, width, stride, bottleneck)
            made.append(block)
        stages[f"layer{stage}"] = Sequential(made)
    return stages


def _end(classes: int) -> dict[str, Layer]:
    return {
        "avgpool": GlobalAveragePool(),
        "flatten": Flatten(),
        "fc": Dense(classes, start="fan_in"),
    }


def resnet(depth: int = 50, size: int = 224, classes: int = 1000, channels: int = 3) -> Sequential:
    """ResNet-18, 34 or 50; in a bottleneck the stride is that of the 3x3 convolution.

    >>> resnet(18).count(), resnet(34).count(), resnet(50).count()
    (11689512, 21797672, 25557032)
    """
    if depth not in DEPTHS:
        raise ShapeError(f"resnet expects a depth of 18, 34 or 50; got {depth}")
    blocks, bottleneck = DEPTHS[depth]
    layers: dict[str, Layer] = {
        "conv1": _conv(64, 7, 2),
        "bn1": BatchNorm(),
        "relu": ReLU(),
        "maxpool": MaxPool(3, 2, padding=1),
        **_stages(64, (64, 128, 256, 512), blocks, bottleneck),
        **_end(classes),
    }
    return Sequential(layers, (channels, size, size), f"resnet{depth}")


def resnet_small(
    depth: int = 20, size: int = 32, classes: int = 10, channels: int = 3
) -> Sequential:
    """The paper's ResNet for images of 32 pixels: a 3x3 convolution, then widths 16, 32 and 64.

    The depth is 6 n + 2 for n blocks in each stage. Where the paper pads a shortcut with zeros,
    this one has a 1x1 convolution and batch normalisation, as in the larger networks.

    >>> resnet_small(8).count(), resnet_small(20).count()
    (78042, 272474)
    """
    if depth < 8 or depth % 6 != 2:
        raise ShapeError(f"resnet_small expects a depth of 8, 14, 20, 26, ...; got {depth}")
    blocks = (depth // 6,) * 3
    layers: dict[str, Layer] = {
        "conv1": _conv(16, 3),
        "bn1": BatchNorm(),
        "relu": ReLU(),
        **_stages(16, (16, 32, 64), blocks, bottleneck=False),
        **_end(classes),
    }
    return Sequential(layers, (channels, size, size), f"resnet{depth}")
