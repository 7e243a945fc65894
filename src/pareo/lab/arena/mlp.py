"""Drawn networks of dense layers."""

from pareo import nn
from pareo.lab.arena.blocks import Layers, activation, classes
from pareo.lab.arena.chance import Chance
from pareo.nn.layers import Shape

DEPTH = 10  # dense layers, at most
WIDTH = (8, 2048)
EXAMPLES = 16  # of a batch that batch normalisation of features needs


def mlp(chance: Chance, batch: int) -> tuple[Layers, Shape]:
    """1 to 10 dense layers of 8 to 2048 units, on as many features or on flattened images.

    Half have one width throughout. Some have residual connections, or a normalisation of the
    features: of batches only where batches are of 16 or more, and multiples of 8.
    """
    depth, same = chance.whole(1, DEPTH), chance.often(0.5)
    width = chance.spread(*WIDTH)
    chosen = activation(chance)
    start = "glorot" if isinstance(chosen, nn.Sigmoid | nn.Tanh | nn.HardSigmoid) else "he"
    bias = chance.often(0.9)
    kind = chance.one_of("batch", "features", *[""] * 5)
    if kind == "batch" and (batch < EXAMPLES or batch % 8):
        kind = "features"
    shape: Shape = (chance.spread(*WIDTH),)
    layers: Layers = []
    if chance.often(0.3):
        side = chance.spread(8, 32)
        shape = (chance.whole(1, 3) if side <= 24 else 1, side, side)
        layers = [nn.Flatten()]
    residual, here = same and chance.often(0.25), 0
    while (left := depth - 1 - here) > 0:
        norm: Layers = []
        if kind:
            norm = [nn.BatchNorm() if kind == "batch" else nn.LayerNorm()]
        if residual and here and left >= 2:
            inner = nn.Dense(width, start, bias), chosen, nn.Dense(width, "glorot", bias)
            layers.append(nn.Residual([*norm, *inner], activation=chance.one_of(None, chosen)))
            here += 2
            continue
        layers += [nn.Dense(width, start, bias), *norm, chosen]
        here += 1
        width = width if same else chance.spread(*WIDTH)
    return [*layers, nn.Dense(classes(chance))], shape
