"""The result of an arena: docs/howto-arena.md describes its fields."""

from dataclasses import dataclass, field
from typing import ClassVar

from pareo.lab.arena.settings import Settings
from pareo.lab.experiment.entry import fastest
from pareo.lab.experiment.results import Amount, Count, Natural, Result
from pareo.lab.experiment.statistics import Verdict
from pareo.lab.race.result import Row


@dataclass(kw_only=True)
class Spent:
    """A layer's part of pareo's step, with the instruction of it that takes longest."""

    layer: str
    share: Amount
    operator: str
    shape: str = ""


@dataclass(kw_only=True)
class Bout:
    """One drawn network and the race on it; `note` says why there was none.

    layers: the network in a line. rows: the contestants, as in a race; samples are seconds for
    `images` images. spent: where the time of pareo's step goes, the longest first.
    """

    index: Natural
    kind: str
    layers: str
    batch: Count
    parameters: Natural
    flops: Natural
    images: Count
    rows: list[Row]
    spent: list[Spent] = field(default_factory=list)
    note: str = ""

    @property
    def ours(self) -> Row | None:
        """pareo's fastest; None where none was timed."""
        return fastest(self.rows, ours=True)

    @property
    def peer(self) -> Row | None:
        """The fastest of the others; None where none was timed."""
        return fastest(self.rows, ours=False)

    @property
    def ratio(self) -> float | None:
        """Seconds of the best peer over pareo's: above 1 is won. None where one was not timed."""
        ours, peer = self.ours, self.peer
        return None if ours is None or peer is None else peer.median / ours.median

    @property
    def verdict(self) -> Verdict | None:
        """Whether pareo is faster or slower than the best peer, and how certain that is."""
        ours, peer = self.ours, self.peer
        return None if ours is None or peer is None else ours.compared_with(peer)

    @property
    def beaten(self) -> bool:
        """Whether pareo has no time though a peer has: refused, failed, or out of memory."""
        return self.ours is None and self.peer is not None

    @property
    def missed(self) -> list[Row]:
        """The contestants that were refused or failed here."""
        return [row for row in self.rows if row.status in ("refused", "failed", "memory")]


@dataclass(kw_only=True)
class ArenaResult(Result):
    """Everything that is known of an arena; `bouts` are those that are over."""

    SCHEMA: ClassVar[int] = 1

    precision: str
    settings: Settings
    bouts: list[Bout]

    @property
    def compared(self) -> list[Bout]:
        """The bouts in which pareo and a peer were timed, the worst first."""
        found = [(bout.ratio, bout) for bout in self.bouts if bout.ratio is not None]
        return [bout for _, bout in sorted(found, key=lambda pair: pair[0])]


RESULTS = {"arena": ArenaResult}
