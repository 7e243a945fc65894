"""Steps in a series: the moments at which a time changed for good.

The logarithms of times are divided in two where their means differ most, again and again, as long
as the difference is larger than noise explains. A single slow day is no step: values are limited to
a few standard deviations, and each side has several points. tests/lab/history and
`benchmarks/history.py` measure how many steps are found, and how many that are none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

FEWEST = 4  # points on each side of a step
SURE = 5.0  # standard errors that two means must differ by: the largest of many is taken
LEAST = 0.01  # relative change: a smaller one is no step, however sure it is
LIMIT = 3.0  # standard deviations to which single values are limited
QUIETEST = 0.002  # standard deviation, at least: clocks and placement of memory differ by more


@dataclass(frozen=True)
class Step:
    """A change before the point of this index; 0.05 is 5 % slower from then on."""

    index: int
    change: float


def steps(values: Sequence[float]) -> list[Step]:
    """The steps of a series of times, each above 0, the earliest first.

    >>> steps([1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.1, 1.11, 1.09, 1.1, 1.11])
    [Step(index=6, change=0.1)]
    >>> steps([1.0, 1.01, 0.99, 1.0, 1.6, 0.99, 1.0, 1.01, 0.99, 1.0, 1.01])
    []
    """
    logs = np.log(np.asarray(values, float))
    if len(logs) < 2 * FEWEST:
        return []
    noise = spread(logs)
    cuts = _cuts(logs, 0, len(logs), noise)
    lasting = _lasting(logs, cuts)
    if lasting > 1.2:  # means of points that are alike are known less well
        cuts = _cuts(logs, 0, len(logs), noise * lasting)
    return _merged(logs, cuts)


def _lasting(logs: Any, cuts: list[int]) -> float:
    """How much larger the error of a mean is than that of independent points, beside these cuts."""
    ends = [0, *cuts, len(logs)]
    parts = [logs[a:b] - np.median(logs[a:b]) for a, b in pairwise(ends)]
    ranks = np.concatenate(parts).argsort().argsort() - (len(logs) - 1) / 2
    alike = float(ranks[1:] @ ranks[:-1]) / max(float(ranks @ ranks), 1.0)
    alike = min(max(alike, 0.0), 0.9)
    return float(((1 + alike) / (1 - alike)) ** 0.5)


def spread(logs: Any) -> float:
    """The standard deviation of noise, from differences of neighbours, which a step hardly moves.

    Noise that lasts from point to point hides in such differences, so those of points further apart
    count, too.

    >>> spread(np.zeros(9)) == QUIETEST
    True
    """
    found = [
        1.4826 * float(np.median(np.abs(logs[lag:] - logs[:-lag]))) / 2**0.5
        for lag in (1, 2, 3)
        if len(logs) >= 2 * FEWEST * lag
    ]
    return max([QUIETEST, *found])


def _cuts(logs: Any, first: int, last: int, noise: float) -> list[int]:
    """Where a part of a series is divided."""
    count = last - first
    if count < 2 * FEWEST:
        return []
    part = logs[first:last]
    middle = float(np.median(part))
    # Limited around a local median, so that a step is not limited away but a single value is.
    usual, far = _local(part), LIMIT * noise
    part = np.clip(part, usual - far, usual + far) - middle
    sums = np.cumsum(part)
    before = np.arange(FEWEST, count - FEWEST + 1)
    left, right = sums[before - 1] / before, (sums[-1] - sums[before - 1]) / (count - before)
    score = np.abs(right - left) * np.sqrt(before * (count - before) / count) / noise
    best = int(np.argmax(score))
    if score[best] <= SURE:
        return []
    cut = first + int(before[best])
    return [*_cuts(logs, first, cut, noise), cut, *_cuts(logs, cut, last, noise)]


def _local(part: Any) -> Any:
    """The median of five neighbours, at every point."""
    padded = np.pad(part, 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)


def _merged(logs: Any, cuts: list[int]) -> list[Step]:
    """The steps at these places; those smaller than LEAST are none."""
    kept = list(cuts)
    while True:
        ends = [0, *kept, len(logs)]
        levels = [float(np.median(logs[a:b])) for a, b in pairwise(ends)]
        changes = [b - a for a, b in pairwise(levels)]
        small = [n for n, change in enumerate(changes) if abs(np.expm1(change)) < LEAST]
        if not small:
            found = zip(kept, changes, strict=True)
            return [Step(at, round(float(np.expm1(change)), 4)) for at, change in found]
        kept.pop(min(small, key=lambda n: abs(changes[n])))
