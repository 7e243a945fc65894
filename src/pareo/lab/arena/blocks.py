"""What drawn networks are made of: activations, normalisations, convolutions, heads.

Weights begin as they should for their activation, so that values and gradients keep their size and
float32 computes them well: `he` before a ReLU and its kin, `glorot` before the others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pareo import nn
from pareo.lab.arena.chance import Chance
from pareo.nn.layers import Shape

Layers = list[nn.Layer]

PIXELS = 16  # of a channel that a batch normalisation needs: fewer have hardly a variance
OF_PAPERS = (nn.Sigmoid(), nn.Tanh(), nn.ReLU(), nn.ReLU(), nn.ReLU())
NEWER = (
    nn.LeakyReLU(), nn.LeakyReLU(0.2), nn.Clip(), nn.GELU(), nn.GELU(approximate=True), nn.SiLU(),
    nn.HardSwish(), nn.HardSigmoid(),
)  # fmt: skip
BOUNDED = (nn.Sigmoid, nn.Tanh, nn.HardSigmoid)


@dataclass(frozen=True)
class Style:
    """What the layers of one network have in common.

    norm: "batch", "channel" (a LayerNorm of channels), "local" (response) or "", none.
    """

    activation: nn.Layer
    norm: str = ""
    bias: bool = True

    @property
    def start(self) -> str:
        """The initialiser of weights before the activation."""
        return "glorot" if isinstance(self.activation, BOUNDED) else "he"

    def after(self, shape: Shape) -> Layers:
        """What follows a convolution with an output of this shape: normalisation, activation."""
        return [*self.normalised(shape), self.activation]

    def normalised(self, shape: Shape) -> Layers:
        """The normalisation of images of this shape, if there is one."""
        match self.norm:
            case "batch":
                return [nn.BatchNorm()] if math.prod(shape[1:]) >= PIXELS else []
            case "channel":
                return [nn.LayerNorm(1)] if shape[0] >= 8 else []
            case "local":
                return [nn.Lrn()]
        return []


def activation(chance: Chance) -> nn.Layer:
    """In three of five cases one of the papers', mostly ReLU; otherwise a newer one."""
    return chance.one_of(*OF_PAPERS) if chance.often(0.6) else chance.one_of(*NEWER)


def style(chance: Chance) -> Style:
    """Of a small CNN: three of five have no normalisation, most of the others one of batches."""
    chosen = activation(chance)
    norm = ""
    if chance.often(0.4):
        norm = chance.one_of("batch", "batch", "batch", "batch", "batch", "channel", "local")
    return Style(chosen, norm, bias=chance.often(0.5) if norm == "batch" else chance.often(0.9))


def out(layers: Sequence[nn.Layer], shape: Shape) -> Shape:
    """The shape after some layers."""
    return nn.Sequential(layers).output(shape)


def conv(
    style: Style, filters: int, size: int | tuple[int, int], stride: int = 1,
    padding: int | tuple[int, int] = 0, groups: int = 1, dilation: int = 1,
) -> nn.Conv:  # fmt: skip
    """A convolution whose weights suit the activation."""
    return nn.Conv(
        filters, size, stride, padding, groups, style.start, style.bias, dilation=dilation
    )


def classes(chance: Chance) -> int:
    """Ten in half of the cases, else from 2 to 100."""
    return 10 if chance.often(0.5) else chance.spread(2, 100)


def head(chance: Chance, style: Style, shape: Shape, hidden: int, most: int) -> Layers:
    """From images to classes: flat or the mean of each channel, then dense layers.

    hidden: dense layers before the last, at most. most: features of a flat image; more are reduced
    to the mean of each channel, or to 2x2 pixels.
    """
    layers: Layers = []
    if chance.often(0.25):
        layers.append(nn.GlobalAveragePool())
    elif math.prod(shape) > most:
        layers.append(chance.one_of(nn.GlobalAveragePool(), nn.AdaptiveAveragePool(2)))
    layers.append(nn.Flatten())
    for _ in range(chance.whole(0, hidden)):
        layers += [nn.Dense(chance.spread(8, 512), style.start), style.activation]
    return [*layers, nn.Dense(classes(chance))]
