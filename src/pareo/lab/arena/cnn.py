"""Drawn small convolutional networks."""

import math

from pareo import nn
from pareo.lab.arena.blocks import Layers, Style, conv, head, out, style
from pareo.lab.arena.chance import Chance
from pareo.nn.layers import Shape

CONVOLUTIONS = 6  # at most
CHANNELS = (1, 128)
SIDE = (8, 64)  # pixels
WINDOWS = (1, 2, 3, 3, 3, 3, 4, 5, 5, 5, 6, 7, 8, 9)
FLAT = 8192  # features of a flat image, at most
VALUES = 1 << 18  # of one image after a layer, at most


def cnn(chance: Chance) -> tuple[Layers, Shape]:
    """1 to 6 convolutions of 1 to 128 channels on images of 8 to 64 pixels a side."""
    height = width = chance.spread(*SIDE)
    if chance.often(0.2):
        width = chance.spread(*SIDE)
    shape: Shape = (chance.whole(1, 3), height, width)
    own = style(chance)
    layers: Layers = []
    if chance.often(0.1):
        count = shape[0]
        layers.append(nn.Normalise((0.1,) * count, (1.2,) * count))
    here = shape
    left = chance.whole(1, CONVOLUTIONS)
    while left > 0:
        block, used = _block(chance, own, here, left)
        left -= used
        layers += block
        here = out(block, here)
        if chance.often(0.45) and min(here[1:]) >= 4:
            pool = _pool(chance, own)
            layers += pool
            here = out(pool, here)
    return [*layers, *head(chance, own, here, hidden=2, most=FLAT)], shape


def _block(chance: Chance, own: Style, here: Shape, left: int) -> tuple[Layers, int]:
    """Layers with one or two convolutions, and how many: mostly one with what follows it."""
    joined = chance.random.random()
    if joined < 0.15 and left >= 2:
        return _residual(chance, own, here), 2
    if joined < 0.20 and left >= 2 and here[0] >= 4:
        return [_excitation(chance, own, here)], 2
    if joined < 0.25 and left >= 2:
        return [_branches(chance, own, here)], 2
    if joined < 0.28 and here[0] < 64:
        new = conv(own, chance.spread(1, 32), 3, padding=1)
        return [nn.Append([new, *own.after(out([new], here))])], 1
    new = _convolution(chance, own, here)
    after = own.after(out([new], here))
    if chance.often(0.05):
        after.insert(len(after) - 1, nn.Scale())
    return [new, *after], 1


def _convolution(chance: Chance, own: Style, here: Shape) -> nn.Conv:
    """Any convolution that fits: its window, stride and padding are drawn."""
    channels, height, width = here
    filters = chance.spread(*CHANNELS)
    high = wide = chance.one_of(*WINDOWS)
    if chance.often(0.1):
        wide = chance.one_of(*WINDOWS)
    size = high, wide
    stride = 2 if chance.often(0.2) else 1
    groups = 1
    if channels > 1 and chance.often(0.15):
        groups = channels
        filters = channels * chance.one_of(1, 1, 2)
    elif channels % 2 == 0 and chance.often(0.05):
        groups = 2
        filters += filters % 2
    dilation = 2 if chance.often(0.05) else 1
    reach = (dilation * (high - 1) + 1, dilation * (wide - 1) + 1)
    same = high // 2 * dilation, wide // 2 * dilation
    padding = same if chance.often(0.5) else (0, 0)
    if any(
        side + 2 * more < window
        for side, more, window in zip((height, width), padding, reach, strict=True)
    ):
        size, dilation, padding = (3, 3), 1, (1, 1)
    made = conv(own, filters, size, stride, padding, groups, dilation)
    if math.prod(out([made], here)) > VALUES and groups == 1:
        fewer = max(1, filters * VALUES // math.prod(out([made], here)))
        made = conv(own, fewer, size, stride, padding, groups, dilation)
    return made


def _pool(chance: Chance, own: Style) -> Layers:
    """Max, average or trained pooling; the trained one has an activation, as in the paper."""
    size, stride = chance.one_of((2, 2), (2, 2), (2, 2), (3, 2), (3, 3), (2, 1), (4, 4))
    match chance.one_of("max", "max", "average", "trained"):
        case "max":
            padded = size == 3 and chance.often(0.5)
            return [nn.MaxPool(size, stride, int(padded), ceil=chance.often(0.1))]
        case "average":
            return [nn.AveragePool(size, stride, ceil=chance.often(0.1))]
    return [nn.Subsample(size, stride), *([own.activation] if chance.often(0.7) else [])]


def _residual(chance: Chance, own: Style, here: Shape) -> Layers:
    """Two convolutions with their input added, by a 1x1 convolution if the shape changes."""
    channels, size = here[0], chance.one_of(3, 3, 5)
    same = chance.often(0.5)
    filters = channels if same else chance.spread(4, 64)
    stride = 1 if same or min(here[1:]) < 8 else chance.one_of(1, 2)
    first = conv(own, filters, size, stride, size // 2)
    between = out([first], here)
    second = nn.Conv(filters, size, 1, size // 2, start="glorot", bias=own.bias)
    body = [first, *own.after(between), second, *own.normalised(between)]
    shortcut = None if same else [nn.Conv(filters, 1, stride, bias=own.bias)]
    return [nn.Residual(body, shortcut, chance.one_of(None, own.activation))]


def _excitation(chance: Chance, own: Style, here: Shape) -> nn.Layer:
    """Squeeze and excitation: each channel times a factor that all channels decide."""
    few = max(1, here[0] // chance.one_of(2, 4))
    factor = chance.one_of(nn.Sigmoid(), nn.HardSigmoid())
    squeezed = [nn.GlobalAveragePool(), nn.Conv(few, 1, start=own.start), own.activation]
    return nn.Gate([*squeezed, nn.Conv(here[0], 1), factor])


def _branches(chance: Chance, own: Style, here: Shape) -> nn.Layer:
    """Two convolutions side by side, joined or added."""
    added = chance.often(0.3)
    filters = chance.spread(1, 32)
    others = filters if added else chance.spread(1, 32)
    branches = [
        [one, *own.after((one.filters, *here[1:]))]
        for one in (conv(own, filters, 1), conv(own, others, 3, padding=1))
    ]
    return (nn.Add if added else nn.Branches)(*branches)
