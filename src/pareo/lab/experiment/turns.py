"""How many steps a turn has: enough that the fixed cost of a call does not count.

A call of one step and a call of many steps give two times: the seconds of a further step, and the
fixed cost (passing the order of images, the launch, waiting for the end, reading back losses). A
turn is made longer, by several epochs if necessary, until the fixed cost is below LIMIT of it.
Where a turn may not be longer, the fixed cost is subtracted from samples and reported separately.
Where the fixed cost is most of a turn, nothing is subtracted.

Caches and clocks that have rested while others ran recover in an opening step, before the clock of
the sample starts.

A turn that is shorter than an epoch never runs past the end of one, so that learning curves have
their points there: the turns of an epoch differ by one step at most.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

LIMIT = 0.01  # of a turn: the fixed cost that a sample may hold
MOST = 0.5  # of a turn: the fixed cost that can be subtracted from a sample
SPARE = 1.5  # factor by which a turn is made longer still: the two times are not exact
LEAST = 0.1  # seconds of a turn that may be made longer
ONES = 7  # calls of one step; the fastest counts
SLOW = 20  # turns that one step may take and still be tried again
TRIES = 4  # lengths of a turn, each of which may have to be compiled
CLOSE = 0.7  # of the wanted length is enough


@dataclass(frozen=True)
class Turn:
    """What one turn is.

    steps: in all. opening: how many of them come before the clock of the sample starts, 0 or 1.
    fixed: seconds of a call that do not depend on its steps; None where a step takes longer than
        LEAST, so that they do not count. share: the same as a share of the timed call.
    apart: whether the fixed cost is subtracted from samples.
    opening_seconds: of the opening step, the median; None where there is none.
    epoch: steps of an epoch, at whose end a turn ends; None where turns do not regard it.
    """

    steps: int = 0
    opening: int = 0
    fixed: float | None = None
    share: float | None = None
    apart: bool = False
    opening_seconds: float | None = None
    epoch: int | None = None

    @classmethod
    def of(
        cls, steps: int, opening: int = 0, fixed: float | None = None, share: float | None = None
    ) -> "Turn":
        """A turn from whose samples the fixed cost is subtracted where LIMIT and MOST say so.

        >>> [Turn.of(11, 1, 0.1, share).apart for share in (None, 0.005, 0.2, 0.8)]
        [False, False, True, False]
        """
        apart = share is not None and LIMIT < share <= MOST
        return cls(steps, opening, fixed, share, apart)

    @property
    def timed(self) -> int:
        """Steps of a sample."""
        return self.steps - self.opening

    def sample(self, took: float, timed: int | None = None) -> float:
        """Seconds per step, where the timed call of all steps, or of so many, took this long.

        >>> Turn.of(11, 1, fixed=0.2, share=0.2).sample(1.0)
        0.08
        """
        least = (1 - MOST) * took  # however much two calls may differ
        alone = max(took - (self.fixed or 0.0), least) if self.apart else took
        return alone / (timed or self.timed)

    def within(self, epoch: int | None) -> "Turn":
        """The turn of nearly this length of which some number makes an epoch.

        >>> Turn.of(47).within(469).steps, Turn.of(260).within(469).steps
        (47, 234)
        >>> Turn.of(1000).within(469).steps  # whole epochs
        938
        """
        if not epoch or not self.steps:
            return self
        turns = max(1, round(epoch / self.steps))
        steps = self.steps // epoch * epoch if self.steps > epoch else round(epoch / turns)
        timed = max(1, steps - self.opening)
        share = self.share and 1 / (1 + (1 / self.share - 1) * timed / self.timed)
        found = Turn.of(steps, self.opening, self.fixed, share)
        return replace(found, opening_seconds=self.opening_seconds, epoch=epoch)

    def length(self, done: int) -> int:
        """Steps of the turn that comes after so many steps.

        >>> turn = Turn.of(260).within(469)
        >>> turn.length(0), turn.length(234), turn.length(469)
        (234, 235, 234)
        """
        if not self.epoch or self.steps >= self.epoch:
            return self.steps
        turns, place = round(self.epoch / self.steps), done % self.epoch
        ends = (self.epoch * number // turns for number in range(1, turns + 1))
        return next(end for end in ends if end > place) - place

    def lengths(self) -> set[int]:
        """The steps that turns have: one number, or two that differ by one.

        >>> sorted(Turn.of(260).within(469).lengths())
        [234, 235]
        """
        if not self.epoch or self.steps >= self.epoch:
            return {self.steps}
        turns = round(self.epoch / self.steps)
        return {self.epoch // turns, math.ceil(self.epoch / turns)}


@dataclass(frozen=True)
class Wanted:
    """The turn that is asked for.

    steps: of a turn; fewer where they would take longer than `seconds`.
    longer: whether it may be made longer. epoch: steps of an epoch; a longer turn is whole epochs.
    most: steps at most: the order of their images must fit in memory.
    """

    steps: int
    seconds: float
    longer: bool = True
    epoch: int | None = None
    most: int = 10**6

    def timed(self, each: float, fixed: float) -> int:
        """Timed steps, where one more takes `each` seconds and a call costs `fixed`.

        >>> Wanted(47, seconds=0.5, epoch=469).timed(7e-6, fixed=1e-3)
        21573
        """
        steps = min(self.steps, self.seconds / each)
        if self.longer:
            enough = min(max(LEAST, SPARE * fixed / LIMIT), self.seconds)
            steps = max(steps, enough / each + 1)
            if self.epoch and steps > self.epoch:
                steps = math.ceil(steps / self.epoch) * self.epoch
        return max(1, math.floor(min(steps, self.most)) - 1)


def planned(call: Callable[[int], float], step: float, wanted: Wanted) -> Turn:
    """The turn of a contestant: `call` trains a number of steps and returns the seconds it took.

    step: seconds of such a call with one step. The last call has the final length, since a new
    length may have to be compiled.

    >>> turn = planned(lambda steps: 1e-3 + 1e-4 * steps, 1e-3, Wanted(10, 0.5))
    >>> turn.steps // 100, round(turn.fixed, 6), turn.apart
    (15, 0.001, False)
    """
    if step <= SLOW * wanted.seconds:  # otherwise one-time work is not the reason
        step = min(step, call(1))
    if step >= LEAST:
        steps = max(1, int(min(wanted.steps, wanted.seconds / step)))
        if steps > 1:
            call(steps)
        return Turn.of(steps)
    one = min(call(1) for _ in range(ONES))
    opening = int(wanted.longer or wanted.steps > 1)
    count = wanted.timed(one, 0.0)
    for _ in range(TRIES):
        probe = max(count, 2)
        call(probe)
        # A difference below a tenth of a call is noise: try a longer one.
        each = max((call(probe) - one) / (probe - 1), one / (10 * probe))
        fixed = max(0.0, one - each)
        goal = wanted.timed(each, fixed)
        if count >= CLOSE * goal:
            break
        count = goal
    else:
        call(count)
    return Turn.of(count + opening, opening, fixed, fixed / (fixed + count * each))
