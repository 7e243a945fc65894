"""What can be said of an arena as a whole: the distribution of best peer / pareo."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pareo.lab.arena.result import ArenaResult, Bout
from pareo.lab.experiment.statistics import FEWEST, RESAMPLES, SEED
from pareo.lab.formatting import counted, times

WORST = 10  # networks that are named
STEP = math.sqrt(2)  # the ratio of the two ends of a class of the histogram


@dataclass(frozen=True)
class Distribution:
    """The ratios best peer / pareo of the networks on which both were timed.

    low, high: the ends of a 95 % interval of the geometric mean, for other networks of this
    distribution. won: ratios above 1. sure: those of them that are 99 % sure. lost: those below 1
    that are as sure. beaten: networks on which pareo has no time though a peer has.
    """

    count: int
    mean: float
    low: float
    high: float
    quartiles: tuple[float, float, float]
    won: int
    sure: int
    lost: int
    beaten: int

    @property
    def share(self) -> float:
        """The share that is won, of all networks on which a peer has a time."""
        return self.won / (self.count + self.beaten)


def distribution(bouts: Sequence[Bout]) -> Distribution | None:
    """The distribution of some bouts; None where no ratio is known."""
    ratios = [ratio for bout in bouts if (ratio := bout.ratio) is not None]
    if not ratios:
        return None
    logs = np.log(ratios)
    draw = np.random.default_rng(SEED)
    resampled = logs[draw.integers(0, len(logs), (RESAMPLES, len(logs)))].mean(axis=1)
    low, high = np.exp(np.quantile(resampled, [0.025, 0.975]))
    first, middle, third = np.exp(np.quantile(logs, [0.25, 0.5, 0.75]))
    words = [bout.verdict.word for bout in bouts if bout.verdict is not None]
    return Distribution(
        count=len(ratios),
        mean=float(np.exp(logs.mean())),
        low=float(low),
        high=float(high),
        quartiles=(float(first), float(middle), float(third)),
        won=int((logs > 0).sum()),
        sure=words.count("faster"),
        lost=words.count("slower"),
        beaten=sum(bout.beaten for bout in bouts),
    )


def headline(result: ArenaResult) -> str:
    """The geometric mean and the share that is won, in one sentence."""
    found = distribution(result.bouts)
    if found is None:
        return "No network was raced by pareo and by a peer; the notes say why."
    networks = counted(found.count + found.beaten, "network")
    return (
        f"On {networks} that nobody chose, the best peer takes {found.mean:.2f} times as long as "
        f"pareo (geometric mean); pareo wins {found.share:.0%} of them."
    )


def lines(result: ArenaResult) -> list[str]:
    """The figures of the distribution, each in a line; then each kind's."""
    found = distribution(result.bouts)
    if found is None:
        return [headline(result)]
    first, middle, third = map(times, found.quartiles)
    ends = f" (95 %: {times(found.low)} to {times(found.high)})" if found.count >= FEWEST else ""
    said = [
        f"best peer / pareo: geometric mean {times(found.mean)}{ends}, median {middle}, "
        f"quartiles {first} and {third}",
        f"pareo wins {found.won} of {found.count + found.beaten} ({found.share:.0%}): "
        f"{found.sure} beyond doubt; it loses {found.lost} beyond doubt"
        + (f", and has no time on {found.beaten}" if found.beaten else ""),
    ]
    kinds = {bout.kind for bout in result.bouts}
    for kind in result.settings.kinds if len(kinds) > 1 else ():
        own = distribution([bout for bout in result.bouts if bout.kind == kind])
        if own is not None:
            said.append(
                f"{kind}: geometric mean {times(own.mean)}, median {times(own.quartiles[1])}, "
                f"wins {own.won} of {own.count + own.beaten}"
            )
    return said


def classes(result: ArenaResult) -> list[tuple[float, float, int]]:
    """The histogram: classes of ratios, each with its two ends and how many lie in it."""
    ratios = [bout.ratio for bout in result.compared if bout.ratio]
    if not ratios:
        return []
    places = [math.floor(math.log(ratio) / math.log(STEP)) for ratio in ratios]
    return [
        (STEP**place, STEP ** (place + 1), places.count(place))
        for place in range(min(places), max(places) + 1)
    ]


def worst(result: ArenaResult) -> list[Bout]:
    """The networks with the lowest ratios; those on which pareo has no time first."""
    return ([bout for bout in result.bouts if bout.beaten] + result.compared)[:WORST]


def hottest(bout: Bout) -> str:
    """The layer that pareo's time goes to, in words; empty where it is not known."""
    if not bout.spent:
        return ""
    first = bout.spent[0]
    return f"{first.share:.0%} in {first.layer} ({first.operator})"
