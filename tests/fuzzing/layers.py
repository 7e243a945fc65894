"""Layers drawn at random: what networks are made of, alone and in the blocks of known ones."""

from typing import Any

import numpy as np
from fuzzing.writer import Random

from pareo import nn
from pareo.errors import ShapeError

LARGEST = 4096  # elements of one example after a layer
CHANNELS = 48  # more are for `large` alone


def grown(d: Random, layers: list[nn.Layer], here: Any, draw: Any) -> Any:
    """Append a layer that fits; the shape after it."""
    for _ in range(20):
        layer = draw(d, here)
        try:
            after = nn.Sequential([layer], here).output(here)
        except ShapeError:
            continue
        if min(after) >= 1 and np.prod(after) <= LARGEST:
            layers.append(layer)
            return after
    return here


def plain_activation(d: Random) -> nn.Layer:
    """One of those that the papers have."""
    layer: nn.Layer = d.one_of(nn.Sigmoid(), nn.Tanh(), nn.ReLU())
    return layer


def activation(d: Random) -> nn.Layer:
    """Any activation, those of the papers as often as all others."""
    if d.flag():
        return plain_activation(d)
    layer: nn.Layer = d.one_of(
        nn.LeakyReLU(d.one_of(0.01, 0.3)), nn.Clip(), nn.Clip(-0.5, 0.75), nn.GELU(),
        nn.GELU(approximate=True), nn.SiLU(), nn.SiLU(), nn.HardSwish(), nn.HardSigmoid(),
    )  # fmt: skip
    return layer


def conv(d: Random, here: Any) -> nn.Conv:
    """A convolution of any kind: of groups, of each channel alone, dilated, without a bias."""
    channels = here[0]
    if d.often(0.2) and channels <= CHANNELS:  # of each channel
        filters = groups = channels
        filters *= d.one_of(1, 1, 1, 2)
    else:
        groups = d.one_of(1, 1, 1, 2)
        filters = groups * (16 if d.often(0.1) else d.whole(1, 4))
    size = d.one_of(1, 2, 3, 3, 5, 5, (1, 3), (4, 2))
    return nn.Conv(
        filters, size, d.one_of(1, 1, 1, 2, (2, 1)), d.one_of(0, 0, 1, 1, 2, (0, 1)), groups,
        bias=d.often(0.7), dilation=d.one_of(1, 1, 1, 1, 2, (1, 2)),
    )  # fmt: skip


def norm(d: Random) -> nn.Layer:
    """A normalisation of images, mostly of the batch."""
    if d.often(0.8):
        return nn.BatchNorm(d.one_of(0.1, 0.5), d.one_of(1e-5, 1e-3))
    return nn.LayerNorm(1, 1e-3)


def image_layer(d: Random, here: Any) -> nn.Layer:
    """A convolution more often than anything else, mostly with what usually follows it."""
    kind = d.whole(0, 15)
    if kind <= 2:
        return nn.Sequential([conv(d, here), activation(d)])
    if kind <= 5:
        return nn.Sequential([conv(d, here), norm(d), *([activation(d)] if d.often(0.8) else [])])
    if kind == 6:
        return conv(d, here)
    if kind == 7:
        pool = d.one_of(nn.MaxPool, nn.MaxPool, nn.AveragePool)
        size = d.whole(1, 3)
        padding = d.one_of(0, 0, 1) if size > 1 else 0
        return pool(size, d.one_of(None, 1, 2, 3), padding, d.flag())
    if kind == 8:
        return nn.Sequential([nn.Subsample(d.whole(1, 4), d.whole(1, 4)), activation(d)])
    if kind == 9:
        return d.one_of(nn.Lrn(d.whole(1, 5), 0.1), nn.Dropout(0.3), activation(d), norm(d))
    if d.often(0.06):
        return large(d)
    if kind == 10:
        return d.one_of(
            nn.Scale(), nn.AdaptiveAveragePool(d.whole(1, 5)), nn.GlobalAveragePool(),
            nn.Normalise(_numbers(d, here[0], -1), _numbers(d, here[0], 0.5)),
        )  # fmt: skip
    if kind == 11:
        return parallel(d, here)
    return d.one_of(residual, residual, inverted, gate)(d, here)


def _numbers(d: Random, count: int, low: float) -> tuple[float, ...]:
    return tuple(float(number) for number in d._random.uniform(low, low + 1, count))


def parallel(d: Random, here: Any) -> nn.Layer:
    """Branches that are joined, added, multiplied or appended."""
    way = d.whole(0, 3)
    if way == 0:
        return nn.Branches(
            [nn.Conv(d.whole(1, 3), 1), activation(d)],
            [nn.Conv(d.whole(1, 3), 3, 1, 1), nn.ReLU()],
            *([[nn.MaxPool(3, 1, 1), nn.Conv(2, 1)]] if d.flag() else []),
        )
    if way == 1:
        inside = [norm(d), activation(d)] if d.flag() else []
        return nn.Append([*inside, nn.Conv(d.whole(1, 3), 3, 1, 1, bias=d.flag())])
    filters = d.whole(1, 4)
    branches = [
        [nn.Conv(filters, 1), *([norm(d)] if d.flag() else [])],
        [nn.Conv(filters, 3, 1, 1), activation(d)],
        [nn.GlobalAveragePool(), nn.Conv(filters, 1)],
    ]
    chosen = branches[: d.whole(1, 3)] if d.flag() else branches[1:]
    return (nn.Add if way == 2 else nn.Multiply)(*chosen)


def residual(d: Random, here: Any) -> nn.Layer:
    """A block of a residual network, with what varies between them."""
    channels = here[0]
    filters, stride = (channels, 1) if d.often(0.6) else (d.whole(1, 4), d.one_of(1, 2))
    body = [nn.Conv(filters, 3, stride, 1, bias=d.often(0.2)), norm(d), activation(d)]
    if d.often(0.6):
        body += [nn.Conv(filters, d.one_of(1, 1, 3), 1, 0, bias=d.often(0.2))]
        body[-1] = nn.Conv(filters, 3, 1, 1) if d.flag() else nn.Conv(filters, 1, bias=False)
    if d.often(0.6):
        body.append(norm(d))
    if d.often(0.15):
        body.append(nn.Scale())
    if d.often(0.15):
        body.append(nn.StochasticDepth(0.3))
    shortcut = None
    if (filters, stride) != (channels, 1) or d.often(0.2):
        shortcut = [nn.Conv(filters, 1, stride, bias=d.flag()), *([norm(d)] if d.flag() else [])]
    after = d.one_of(None, nn.ReLU(), nn.ReLU(), activation(d))
    return nn.Residual(body, shortcut, after)


def inverted(d: Random, here: Any) -> nn.Layer:
    """A block of MobileNet: expand, convolve each channel, project, and perhaps add the input."""
    channels, wide = here[0], here[0] * d.one_of(1, 2, 3)
    middle, stride = activation(d), d.one_of(1, 1, 2)
    body = [
        *([nn.Conv(wide, 1, bias=False), nn.BatchNorm(), middle] if wide > channels else []),
        nn.Conv(wide, d.one_of(3, 5), stride, d.one_of(1, 1, 2), wide, bias=False),
        nn.BatchNorm(),
        middle,
        *([gate(d, (wide, *here[1:]))] if d.often(0.3) else []),
        nn.Conv(channels, 1, bias=False),
        nn.BatchNorm(),
    ]
    return nn.Residual(body) if d.often(0.6) else nn.Sequential(body)


def gate(d: Random, here: Any) -> nn.Layer:
    """Squeeze and excitation."""
    inner = [nn.GlobalAveragePool(), nn.Conv(d.whole(1, 3), 1), activation(d)]
    return nn.Gate([*inner, nn.Conv(here[0], 1), d.one_of(nn.Sigmoid(), nn.HardSigmoid())])


def large(d: Random) -> nn.Layer:
    """Filters of 4096 weights or more, for which a GPU has ways of its own."""
    if d.flag():
        second = nn.Conv(16, 3, d.one_of(1, 2), 1)
        return nn.Sequential([nn.Conv(32, 3, 1, 1), activation(d), second, activation(d)])
    return nn.Sequential(
        [
            nn.Conv(64, 1),
            nn.Branches(
                [nn.Conv(64, 1), activation(d)],
                [nn.Conv(64, 1), nn.ReLU(), nn.Conv(8, 3, 1, 1)],
                [nn.MaxPool(3, 1, 1), nn.Conv(4, 1), activation(d)],
            ),
        ]
    )


def tokens(d: Random, here: Any) -> list[nn.Layer]:
    """Images as tokens through blocks of a transformer, down to features."""
    heads = d.whole(1, 3)
    features = heads * d.whole(1, 4)
    layers: list[nn.Layer] = [nn.Conv(features, 2, 2), nn.Tokens()]
    if min(here[1:]) < 2 or d.often(0.2):
        layers = [nn.Tokens(), nn.Dense(features)]
    layers += [nn.ClassToken()] if d.often(0.6) else []
    layers += [nn.PositionEmbedding()] if d.often(0.6) else []
    for _ in range(d.whole(1, 2)):
        inner = [nn.Dense(3 * features), nn.Attention(heads, d.often(0.3)), nn.Dense(features)]
        wide = [nn.Dense(d.whole(2, 9)), activation(d), nn.Dense(features, bias=d.often(0.7))]
        for body in (inner, wide):
            before = [nn.LayerNorm(epsilon=d.one_of(1e-5, 1e-3))] if d.often(0.8) else []
            after = [nn.Scale()] if d.often(0.2) else []
            after += [nn.StochasticDepth(0.3)] if d.often(0.1) else []
            layers.append(nn.Residual([*before, *body, *after]))
    layers += [nn.LayerNorm()] if d.often(0.6) else []
    layers.append(nn.FirstToken() if d.often(0.7) else nn.Flatten())
    return layers


def flat_layer(d: Random, here: Any) -> nn.Layer:
    """A dense layer, mostly with its activation."""
    if d.often(0.15):
        return nn.Dropout(0.3)
    if d.often(0.1):
        return d.one_of(nn.BatchNorm(), nn.LayerNorm(epsilon=1e-3), nn.Scale(), activation(d))
    if d.often(0.1):
        body = [nn.Dense(d.whole(2, 9)), activation(d), nn.Dense(here[0])]
        return nn.Residual(body, activation=d.one_of(None, nn.ReLU()))
    units, bias = d.one_of(1, 2, 3, 7, 16, 40), d.often(0.9)
    if d.often(0.1):
        return nn.Dense(units, bias=bias)
    return nn.Sequential([nn.Dense(units, bias=bias), activation(d)])
