"""Drawn networks of middle size, in the style of VGG, NiN, Inception and ResNet."""

from pareo import nn
from pareo.lab.arena.blocks import Layers, Style, classes, conv, head, out
from pareo.lab.arena.chance import Chance
from pareo.nn.layers import Shape

SIDE = (32, 96)  # pixels
LEAST = 4  # pixels a side: no stage makes images smaller
FLAT = 8192  # features of a flat image, at most


def mid(chance: Chance) -> tuple[Layers, Shape]:
    """One of four styles at 32 to 96 pixels a side, with 8 to 64 channels in the first stage."""
    side = chance.one_of(32, 32, 48, 64, 96, chance.whole(*SIDE))
    shape: Shape = (chance.one_of(1, 3, 3, 3), side, side)
    activation = nn.ReLU() if chance.often(0.8) else chance.one_of(nn.SiLU(), nn.GELU(), nn.Clip())
    norm = "batch" if chance.often(0.5) else ""
    style = Style(activation, norm, bias=not norm)
    width = chance.spread(8, 32 if side > 64 else 64)
    return chance.one_of(_vgg, _nin, _inception, _resnet)(chance, style, shape, width), shape


def _after(style: Style, layers: Layers, shape: Shape) -> Shape:
    """Append normalisation and activation to a convolution; the shape after them."""
    here = out(layers, shape)
    layers += style.after(here)
    return here


def _vgg(chance: Chance, style: Style, shape: Shape, width: int) -> Layers:
    """Stages of 3x3 convolutions, each ending in max pooling; then dense layers."""
    layers: Layers = []
    here = shape
    for stage in range(chance.whole(2, 4)):
        if min(here[1:]) < 2 * LEAST:
            break
        for _ in range(chance.whole(1, 2 if stage < 2 else 3)):
            layers.append(conv(style, min(width << stage, 256), 3, padding=1))
            here = _after(style, layers, shape)
        layers.append(nn.MaxPool(2))
        here = out(layers, shape)
    return [*layers, *head(chance, style, here, hidden=2, most=FLAT)]


def _nin(chance: Chance, style: Style, shape: Shape, width: int) -> Layers:
    """A network in a network: each convolution is followed by two of 1x1."""
    layers: Layers = []
    count = chance.whole(2, 3)
    here = shape
    for stage in range(count):
        size = chance.one_of(3, 5)
        filters = width * (stage + 1)
        for window in (size, 1, 1):
            layers.append(conv(style, filters, window, padding=window // 2))
            here = _after(style, layers, shape)
        if stage < count - 1 and min(here[1:]) >= 2 * LEAST:
            layers.append(chance.one_of(nn.MaxPool(3, 2, 1), nn.AveragePool(3, 2)))
    layers += [nn.Conv(classes(chance), 1), nn.GlobalAveragePool(), nn.Flatten()]
    return layers


def _inception(chance: Chance, style: Style, shape: Shape, width: int) -> Layers:
    """A convolution, and modules of four branches: 1x1, 3x3, 5x5 and pooling."""
    layers: Layers = [conv(style, width, 3, chance.one_of(1, 2), 1)]
    here = _after(style, layers, shape)
    for module in range(chance.whole(2, 4)):
        layers.append(_module(chance, style, here, max(4, width // 2 * (1 + module // 2))))
        here = out(layers, shape)
        if module % 2 and min(here[1:]) >= 2 * LEAST:
            layers.append(nn.MaxPool(3, 2, 1))
            here = out(layers, shape)
    return [*layers, nn.GlobalAveragePool(), nn.Flatten(), nn.Dense(classes(chance))]


def _module(chance: Chance, style: Style, here: Shape, width: int) -> nn.Layer:
    """Branches, whose outputs are joined; those with large windows have fewer channels."""
    pixels = here[1:]
    few = max(1, width // 4)

    def block(filters: int, size: int) -> Layers:
        return [conv(style, filters, size, padding=size // 2), *style.after((filters, *pixels))]

    pool = chance.one_of(nn.MaxPool(3, 1, 1), nn.AveragePool(3, 1, 1))
    return nn.Branches(
        block(width, 1),
        block(max(1, width // 2), 1) + block(width, 3),
        block(few, 1) + block(max(1, width // 2), 5),
        [pool, *block(few, 1)],
    )


def _resnet(chance: Chance, style: Style, shape: Shape, width: int) -> Layers:
    """Stages of residual blocks: two 3x3 convolutions, a bottleneck, or a depthwise one."""
    kind = chance.one_of("basic", "basic", "bottleneck", "inverted")
    layers: Layers = [conv(style, width, 3, 2 if shape[1] > 64 else 1, 1)]
    here = _after(style, layers, shape)
    for stage in range(chance.whole(2, 4)):
        for number in range(chance.whole(1, 2)):
            stride = 2 if stage and not number and min(here[1:]) >= 2 * LEAST else 1
            layers.append(_residual(style, here, min(width << stage, 256), stride, kind))
            here = out(layers, shape)
    return [*layers, nn.GlobalAveragePool(), nn.Flatten(), nn.Dense(classes(chance))]


def _residual(style: Style, here: Shape, filters: int, stride: int, kind: str) -> nn.Layer:
    """A block; where nothing is normalised its last convolution begins small."""
    steps: list[tuple[int, int, int, int]] = {  # filters, window, stride, groups
        "basic": [(filters, 3, stride, 1), (filters, 3, 1, 1)],
        "bottleneck": [
            (max(1, filters // 4), 1, 1, 1),
            (max(1, filters // 4), 3, stride, 1),
            (filters, 1, 1, 1),
        ],
        "inverted": [
            (3 * here[0], 1, 1, 1),
            (3 * here[0], 3, stride, 3 * here[0]),
            (filters, 1, 1, 1),
        ],
    }[kind]
    body: Layers = []
    for count, size, step, groups in steps:
        body.append(conv(style, count, size, step, size // 2, groups))
        _after(style, body, here)
    del body[-1]  # the activation comes after the addition, except in an inverted block
    last = len(body) - 1 - bool(style.normalised(out(body, here)))
    end = body[last]
    assert isinstance(end, nn.Conv)
    body[last] = nn.Conv(end.filters, end.size, end.stride, end.padding, end.groups,
                         bias=style.bias)  # fmt: skip
    shortcut: Layers | None = None
    if stride != 1 or filters != here[0]:
        shortcut = [nn.Conv(filters, 1, stride, bias=style.bias)]
        shortcut += style.normalised(out(shortcut, here))
    return nn.Residual(body, shortcut, None if kind == "inverted" else style.activation)
