"""Networks drawn at random: the same seed, index and kinds give the same network.

Each index is one network. Its kind is drawn first, each of `kinds` as likely; the network is then
drawn by the seed, the index and the kind alone, so `--kinds cnn` gives the same small CNNs as all
kinds do, at other places. docs/howto-arena.md describes the distribution.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pareo import nn
from pareo.errors import PareoError
from pareo.lab.arena.chance import Chance
from pareo.lab.arena.cnn import cnn
from pareo.lab.arena.mid import mid
from pareo.lab.arena.mlp import EXAMPLES, mlp
from pareo.lab.arena.text import described
from pareo.training.step import step_program

KINDS = ("mlp", "cnn", "mid")
LARGEST = 4096  # of a batch that may be asked for
FLOPS = 4 * 10**9  # of a step: a batch that is drawn between two sizes is halved until it has fewer


@dataclass(frozen=True)
class Batches:
    """The batch sizes to draw from: any between two, or one of a list.

    Between two, 8 to 16 is as likely as 128 to 256, and half are powers of two.

    >>> Batches.parsed("1..512"), Batches.parsed("32,100")
    (Batches(sizes=(1, 512), between=True), Batches(sizes=(32, 100), between=False))
    """

    sizes: tuple[int, ...] = (1, 512)
    between: bool = True

    @classmethod
    def parsed(cls, text: str) -> "Batches":
        """The sizes that a user writes."""
        between = re.fullmatch(r"\s*(\d{1,9})\s*\.\.\s*(\d{1,9})\s*", text)
        parts = list(between.groups()) if between else text.split(",")
        sizes = tuple(int(part) for part in parts if re.fullmatch(r"\s*\d{1,9}\s*", part))
        wrong = len(sizes) != len(parts) or min(sizes) < 1 or max(sizes) > LARGEST
        if wrong or (between and sizes[0] > sizes[1]):
            raise PareoError(
                f"--batch expects sizes as in 1..512, 64 or 1,8,32, up to {LARGEST}; got {text!r}"
            )
        return cls(sizes, bool(between))

    def drawn(self, chance: Chance) -> int:
        """One of them."""
        if not self.between:
            return chance.one_of(*self.sizes)
        low, high = self.sizes
        size = chance.spread(low, high)
        power = 1 << (size.bit_length() - 1)
        return power if chance.often(0.5) and power >= low else size


@dataclass(frozen=True)
class Drawn:
    """A drawn network, its batch size, and where it came from."""

    network: nn.Sequential
    batch: int
    kind: str
    seed: int
    index: int

    def __str__(self) -> str:
        """In one line.

        >>> print(drawn(0, 46))
        batch 337, 1390: Dense(54), ReLU, Dense(191), ReLU, Dense(36), ReLU, Dense(21)
        """
        return f"batch {self.batch}, {described(self.network)}"

    @property
    def rate(self) -> float:
        """The learning rate at which its first steps neither stand still nor diverge."""
        return 0.05 if self.network.state else 0.01

    @property
    def flops(self) -> int:
        """FLOPs of a training step."""
        return step_program(self.network, self.batch).flops


def drawn(
    seed: int, index: int, kinds: Sequence[str] = KINDS, batches: Batches | None = None
) -> Drawn:
    """The network of a seed and an index.

    >>> drawn(0, 3) == drawn(0, 3), drawn(0, 3) == drawn(1, 3)
    (True, False)
    """
    where = [seed, index]
    kind = Chance(np.random.default_rng(where)).one_of(*sorted(kinds))
    chance = Chance(np.random.default_rng([*where, 1 + KINDS.index(kind)]))
    batches = batches or Batches()
    batch = batches.drawn(Chance(np.random.default_rng([*where, 0])))
    if kind == "mlp":
        layers, shape = mlp(chance, batch)
    else:
        layers, shape = (cnn if kind == "cnn" else mid)(chance)
    network = nn.Sequential(layers, shape, f"{kind}-{seed}-{index}")
    if batches.between:
        batch = _bounded(network, batch, batches.sizes[0])
    return Drawn(network, batch, kind, seed, index)


def _bounded(network: nn.Sequential, batch: int, low: int) -> int:
    """The batch size, halved until a step has few enough FLOPs."""
    each = step_program(network, 2).flops / 2
    flat = any(
        isinstance(layer, nn.BatchNorm) and len(shape) == 1
        for _, layer, shape in network.walk(network.inputs)
    )
    least = max(low, EXAMPLES) if flat else low
    while batch > least and batch * each > FLOPS:
        batch = max(least, batch // 2)
        batch = max(least, batch // 8 * 8) if flat else batch
    return batch


def kinds_of(text: str) -> tuple[str, ...]:
    """The kinds that a user names.

    >>> kinds_of("cnn, mlp")
    ('mlp', 'cnn')
    >>> kinds_of("rnn")
    Traceback (most recent call last):
    pareo.errors.PareoError: --kinds expects some of mlp, cnn, mid; got 'rnn'
    """
    named = {part.strip() for part in text.split(",")}
    if not named <= set(KINDS):
        raise PareoError(f"--kinds expects some of {', '.join(KINDS)}; got {text!r}")
    return tuple(kind for kind in KINDS if kind in named)
