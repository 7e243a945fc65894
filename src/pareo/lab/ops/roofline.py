"""How far a piece of work is from its limits: of arithmetic, of bandwidth, of the roofline."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pareo.lab.experiment import statistics
from pareo.lab.machine.ceilings import Ceilings


@dataclass(frozen=True)
class Limits:
    """The least seconds that a piece of work needs: for its FLOPs, for its bytes, hot and cold."""

    arithmetic: float
    hot: float
    cold: float

    def floor(self, cold: bool) -> float:
        """The roofline: whichever takes longer."""
        return max(self.arithmetic, self.cold if cold else self.hot)

    @property
    def why(self) -> str:
        """What limits it when its operands are in the nearest memory that holds them."""
        return "arithmetic" if self.arithmetic >= self.hot else "bandwidth"


@dataclass(frozen=True)
class Figures:
    """What a table shows of one cell; shares are of 1."""

    seconds: float
    low: float
    high: float
    flops_rate: float
    byte_rate: float
    intensity: float
    of_peak: float
    of_bandwidth: float
    of_roofline: float


def limits(flops: float, read: int, written: int, ceilings: Ceilings) -> Limits:
    """The limits of a piece of work that needs at least this many FLOPs, on a machine.

    Hot operands come from the nearest memory that holds them all. Cold operands must be read from
    memory; results may stay in a cache.
    """
    moved, mix = read + written, read / written if written else math.inf
    hot = moved / ceilings.bandwidth(moved, mix).value
    cold = max(hot, read / ceilings.memory(math.inf).value)
    return Limits(flops / ceilings.peak("float32").value, hot, cold)


def figures(
    samples: Sequence[float],
    flops: float,
    moved: int,
    limit: Limits,
    peak: float,
    cold: bool = False,
) -> Figures:
    """The figures that follow from samples, which are seconds of a call.

    >>> found = figures([2.0], flops=8, moved=4, limit=Limits(0.5, 1.0, 1.5), peak=16.0)
    >>> found.of_peak, found.of_bandwidth, found.of_roofline, found.intensity
    (0.25, 0.5, 0.5, 2.0)
    """
    low, seconds, high = statistics.interval(samples)
    return Figures(
        seconds,
        low,
        high,
        flops / seconds,
        moved / seconds,
        flops / moved if moved else math.inf,
        flops / seconds / peak,
        (limit.cold if cold else limit.hot) / seconds,
        limit.floor(cold) / seconds,
    )
