"""Statistics of timings: how well a time is known, and whether two of them differ.

Samples are seconds in the order they were taken. None is ever dropped: medians are robust against
outliers. Intervals are bootstrap intervals with a fixed seed, so that the same samples always give
the same result. They are wider where noise lasts from one sample to the next, and unbounded where
the samples are worth too few independent ones.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

RESAMPLES = 4000
ROUNDS = 25  # that a race should have: see tests/lab/experiment/test_statistics.py
FEWEST = 8  # samples: in more than 1 race of 100 all of 7 lie on one side of the true median
ENDS = 5  # samples: the median of fewer lies beyond all of them more often than 1 time in 15
INDEPENDENT = 2.0  # samples that the others must be worth: one alone has no spread
# How far above its estimate the autocorrelation is taken to be, in standard errors: too low an
# estimate makes an interval too narrow. With one, errors stay at their level for 25 samples and an
# autocorrelation of up to 0.8, though rounds end when intervals are narrow: see
# tests/lab/experiment/test_lasting_noise.py. A half did not.
CAUTION = 1.0
# A verdict needs more confidence than an interval: at 95 % one of twenty races of equals is won.
SURE = 0.99
# Two processes of one program differ as long as they live: by the placement of their memory, and by
# the order of their turns while a machine slows down. No number of rounds removes that, so only a
# larger difference counts.
MARGIN = 0.02
SEED = 20
SPARE_CORE = 0.25  # of a core that others may take: less is this process and the system


@dataclass(frozen=True)
class Verdict:
    """How one contestant's times are beside another's.

    ratio: its seconds over the other's, so below 1 is faster; low and high bound it at 99 %.
    word: "faster" or "slower" where both bounds are more than MARGIN away from 1, else
        "cannot tell".
    tellable: the smallest difference that would have shown, as a share (0.03 is 3 %).
    """

    ratio: float
    low: float
    high: float
    word: str
    tellable: float

    def __str__(self) -> str:
        """In words.

        >>> str(Verdict(0.5, 0.48, 0.52, "faster", 0.03))
        'faster: 2 times as fast (1.92 to 2.08)'
        >>> str(Verdict(1.42, 1.39, 1.45, "slower", 0.03))
        'slower: takes 1.42 times as long (1.39 to 1.45)'
        >>> str(Verdict(1.01, 0.97, 1.04, "cannot tell", 0.035))
        'cannot tell: less than 3.5 % would not show'
        """
        if self.word != "cannot tell":
            ends = self.ratio, self.low, self.high
            faster = self.word == "faster"
            if faster:
                ends = 1 / self.ratio, 1 / self.high, 1 / self.low
            ratio, low, high = (f"{v:,.0f}" if v >= 1000 else f"{v:.3g}" for v in ends)
            said = f"{ratio} times as fast" if faster else f"takes {ratio} times as long"
            return f"{self.word}: {said} ({low} to {high})"
        if math.isinf(self.tellable):
            return "cannot tell: too few independent samples"
        return f"cannot tell: less than {self.tellable * 100:.2g} % would not show"


def interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """The median between the two ends of its bootstrap interval.

    The ends are 0 and infinity for fewer than 5 samples, and where noise lasts so long that all
    samples are worth fewer than 2 independent ones. `has_ends` tells which.

    >>> [round(end, 2) for end in interval([2.0, 2.1, 1.9, 2.0, 2.2, 2.0])]
    [1.88, 2.0, 2.25]
    >>> interval([2.0, 2.1, 1.9, 2.0])
    (0.0, 2.0, inf)
    """
    return _interval(tuple(map(float, _checked(samples))), confidence)


@lru_cache(1024)  # a live table asks again and again for rows that are done
def _interval(samples: tuple[float, ...], confidence: float) -> tuple[float, float, float]:
    values = np.array(samples)
    middle = float(np.median(values))
    worth = independent(values)
    if len(values) < ENDS or worth < INDEPENDENT:
        return 0.0, middle, math.inf
    drawn = np.log(
        np.median(_resampled(values), axis=1)
    )  # of logarithms, so that no end is below 0
    low, high = _stretched(drawn, math.log(middle), confidence, len(values), worth)
    return math.exp(low), middle, math.exp(high)


def has_ends(low: float, high: float) -> bool:
    """Whether an interval is bounded.

    >>> has_ends(1.9, 2.2), has_ends(0.0, math.inf)
    (True, False)
    """
    return math.isfinite(high - low)


def error_bar(low: float, middle: float, high: float) -> tuple[float, float]:
    """Distances from the median to both ends, for a figure; 0 where there are none.

    >>> error_bar(1.5, 2.0, 2.25), error_bar(0.0, 2.0, math.inf)
    ((0.5, 0.25), (0.0, 0.0))
    """
    known = has_ends(low, high)
    return (max(0.0, middle - low), max(0.0, high - middle)) if known else (0.0, 0.0)


def compare(these: Sequence[float], others: Sequence[float], interleaved: bool = True) -> Verdict:
    """Whether these samples are faster or slower than the others.

    Interleaved samples, as many of each, are compared round by round, so what slowed both in one
    round does not count. Otherwise the two medians are compared.

    >>> base = [1.00, 1.02, 0.99, 1.01, 1.00, 1.03, 0.98, 1.01]
    >>> compare([1.1 * s for s in base], base).word
    'slower'
    >>> compare(base, base[::-1]).word
    'cannot tell'
    """
    a, b = np.log(_checked(these)), np.log(_checked(others))
    count = min(len(a), len(b))
    if interleaved and len(a) == len(b):
        middle, worth = np.median(a - b), independent(a - b)
        drawn = np.median(_resampled(a - b), axis=1)
    else:
        middle = np.median(a) - np.median(b)
        worth = count * min(independent(x) / len(x) for x in (a, b))
        drawn = np.median(_resampled(a), axis=1) - np.median(_resampled(b, SEED + 1), axis=1)
    ratio = math.exp(middle)
    if count < FEWEST or worth < INDEPENDENT:
        return Verdict(ratio, 0.0, math.inf, "cannot tell", math.inf)
    low, high = _stretched(drawn, float(middle), SURE, count, worth)
    edge = math.log1p(MARGIN)
    word = "slower" if low > edge else "faster" if high < -edge else "cannot tell"
    smallest = math.expm1(edge + (high - low) / 2)
    return Verdict(ratio, math.exp(low), math.exp(high), word, smallest)


def enough(samples: Sequence[float], narrow: float = 0.01, deadline: float | None = None) -> bool:
    """Whether to stop: half of the interval is narrow, as a share of the median, or time is up.

    `deadline` is a moment of `time.perf_counter()`.

    >>> enough([2.0] * 8), enough([2.0, 3.0] * 4), enough([2.0, 2.0])
    (True, False, False)
    """
    if deadline is not None and time.perf_counter() >= deadline:
        return True
    if len(samples) < FEWEST:
        return False
    low, middle, high = interval(samples)
    return (high - low) / 2 <= narrow * middle


def outliers(samples: Sequence[float]) -> list[int]:
    """Positions of samples more than 5 robust standard deviations from the rest; they are kept.

    >>> outliers([1.0, 1.01, 0.99, 1.0, 1.9, 1.0])
    [4]
    """
    values = _checked(samples)
    away = np.abs(values - np.median(values))
    spread = max(1.4826 * float(np.median(away)), 0.002 * float(np.median(values)))
    return [int(place) for place in np.flatnonzero(away > 5 * spread)]


def drift(samples: Sequence[float]) -> float:
    """The relative growth of times from the first sample to the last; 0 without a clear trend.

    A trend is clear if the Mann-Kendall test has 99 % confidence and it is 2 % or more.

    >>> round(drift([1.00, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07]), 3)
    0.07
    >>> drift([1.00, 1.02, 1.01, 1.02, 1.00, 1.01, 1.02, 1.00])
    0.0
    """
    values = _checked(samples)
    count = len(values)
    earlier, later = np.triu_indices(count, 1)
    steps = values[later] - values[earlier]
    spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    if count < FEWEST or abs(np.sign(steps).sum()) <= 2.576 * spread:
        return 0.0
    slope = float(np.median(steps / (later - earlier)))  # the Theil-Sen estimator
    middle = float(np.median(values))
    change = slope * (count - 1) / (middle - slope * (count - 1) / 2)
    return change if abs(change) >= 0.02 else 0.0


def busy(threads: int, idle_cores: float | None) -> str | None:
    """A sentence, at the start, where other programs take cores that a measurement needs.

    >>> busy(2, 0.5)
    'Other programs are running: 0.5 cores are idle, for 2 threads. Times will be too long.'
    >>> busy(2, 1.9), busy(2, None)
    (None, None)
    """
    if idle_cores is None or idle_cores >= threads - SPARE_CORE:
        return None
    return (
        f"Other programs are running: {idle_cores:g} cores are idle, for {threads} "
        f"{'thread' if threads == 1 else 'threads'}. Times will be too long."
    )


def noticed(
    samples: Mapping[str, Sequence[float]], threads: int = 0, idle_cores: float | None = None
) -> list[str]:
    """What a reader must know about the samples of an experiment, in sentences; often nothing.

    idle_cores: how many were idle before it began, where that is known.

    >>> slowing = [1 + 0.01 * n for n in range(12)]
    >>> noticed({"a": slowing, "b": slowing})[0]
    'Everyone became slower while it ran (by 11 %): this machine throttled or was busy.'
    """
    return [*warned(samples, threads, idle_cores), *far_samples(samples)]


def far_samples(samples: Mapping[str, Sequence[float]]) -> list[str]:
    """How many samples of each contestant are outliers, a sentence for each that has any.

    >>> far_samples({"a": [1.0, 1.01, 0.99, 1.0, 1.9, 1.0], "b": [1.0, 1.0]})
    ['a: 1 of 6 samples lie far from the rest; kept.']
    """
    return [
        f"{name}: {len(far)} of {len(row)} samples lie far from the rest; kept."
        for name, row in samples.items()
        if len(row) and (far := outliers(row))
    ]


def warned(
    samples: Mapping[str, Sequence[float]], threads: int = 0, idle_cores: float | None = None
) -> list[str]:
    """What casts doubt on all of an experiment's times: other programs, and drift.

    >>> warned({}, threads=2, idle_cores=0.5)[0][:60]
    'Other programs were running: 0.5 cores were idle before it b'
    """
    taken = {name: row for name, row in samples.items() if len(row)}
    drifts = {name: drift(row) for name, row in taken.items()}
    found = []
    if idle_cores is not None and idle_cores < threads - SPARE_CORE:
        found.append(
            f"Other programs were running: {idle_cores:g} cores were idle before it began, for "
            f"{threads} threads. That does not slow everyone alike, so trust no ratio here."
        )
    if len(drifts) > 1 and all(change > 0 for change in drifts.values()):
        share = float(np.median(list(drifts.values())))
        found.append(
            f"Everyone became slower while it ran (by {share * 100:.0f} %): this machine throttled "
            "or was busy."
        )
    else:
        for name, change in drifts.items():
            if change:
                word = "slower" if change > 0 else "faster"
                found.append(f"{name} became {abs(change) * 100:.0f} % {word} while it ran.")
    return found


def _checked(samples: Sequence[float]) -> Any:
    values = np.asarray(samples, float)
    if values.ndim != 1 or not len(values) or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"expected samples in seconds, each above 0; got {samples!r:.80}")
    return values


def _resampled(values: Any, seed: int = SEED) -> Any:
    """RESAMPLES rows, each as many values as were taken, drawn from them with replacement."""
    draw = np.random.default_rng(seed)
    return values[draw.integers(0, len(values), (RESAMPLES, len(values)))]


def independent(values: Any) -> float:
    """The number of independent samples that these are worth, at most as many as there are.

    Where noise lasts, successive samples are alike and carry less information. The autocorrelation
    is that of ranks, which is robust against outliers. Its estimate from few samples is too low by
    (1 + 4 r) / count (Marriott and Pope), which is corrected, and has the standard error
    1 / sqrt(count), of which CAUTION is added.

    >>> independent(np.array([1.0, 3.0, 0.0, 2.0, 1.5, 3.5, 0.5, 2.5]))
    8.0
    >>> round(independent(np.arange(40.0)), 1)
    0.4
    """
    count = len(values)
    _, place, equals = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(equals) - (equals - 1) / 2)[place] - (count + 1) / 2  # equals share a rank
    alike = float(ranks[1:] @ ranks[:-1]) / max(float(ranks @ ranks), 1.0)
    alike += (1 + 4 * max(alike, 0.0)) / count + CAUTION / math.sqrt(count)
    alike = min(max(alike, 0.0), 0.98)
    return count * (1 - alike) / (1 + alike)


def _stretched(
    drawn: Any, middle: float, confidence: float, count: int, worth: float
) -> tuple[float, float]:
    """The ends of a bootstrap distribution of `count` samples that are worth `worth`."""
    stretch = math.sqrt(count / worth)
    low, high = _ends(drawn, confidence, worth)
    return middle + stretch * (low - middle), middle + stretch * (high - middle)


def _ends(drawn: Any, confidence: float, count: float) -> tuple[float, float]:
    """The two quantiles that hold a share of a bootstrap distribution.

    The bootstrap of a few samples is too narrow: of 15 samples it held the true median in 91 % of
    cases where it said 95 %. So the quantiles lie further out, as Student's t lies outside the
    normal distribution (Hesterberg's expanded percentiles; t by Cornish and Fisher's series).
    """
    usual, freedom = NormalDist(), count - 1
    z = usual.inv_cdf((1 + confidence) / 2)
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    tail = usual.cdf(-t * math.sqrt(count / freedom))
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)
