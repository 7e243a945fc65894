"""A race of ways to use all cores: turns in rounds, and what they say of each way.

A way trains and tests, and tells how long it took and what it learned. Who does not learn the same
as the way that everyone is held against gets no time.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pareo.errors import PareoError
from pareo.interrupt import ImmediateInterrupt
from pareo.parallel.trials.trial import Result, sentence

AGREE = 2e-3  # of a loss after an epoch: float32's rounding, grown over hundreds of steps


@dataclass(frozen=True)
class Turn:
    """What one turn of a way took, in seconds.

    communication and idle: shares of all workers' time, None where nobody could tell
    losses: the mean loss of each network that was trained
    """

    train: float
    test: float | None
    losses: Sequence[float]
    communication: float | None = None
    idle: float | None = None


@dataclass(frozen=True)
class Way:
    """One way of using so many workers on so many networks."""

    name: str
    workers: int
    run: Callable[[], Turn]
    contestant: str = "pareo"
    networks: int = 1


@dataclass
class Row:
    """What was measured of a way; `note` says why it has no times."""

    contestant: str
    name: str
    workers: int
    networks: int
    train: list[float] = field(default_factory=list)
    test: list[float] = field(default_factory=list)
    communication: float | None = None
    idle: float | None = None
    status: str = "ok"
    note: str = ""

    @property
    def each(self) -> float:
        """Seconds for each network, the median; infinite where there is none."""
        return float(np.median(self.train)) / self.networks if self.train else math.inf

    @property
    def each_test(self) -> float:
        """Seconds of testing for each network likewise."""
        return float(np.median(self.test)) / self.networks if self.test else math.inf


Watch = Callable[[list[Row], str], None]


def race(ways: Sequence[Way], rounds: int, watch: Watch = lambda rows, doing: None) -> list[Row]:
    """Let every way have a turn in every round, after one untimed; the first is the reference.

    A way that fails is a row that says why.

    >>> ways = [Way("one", 1, lambda: Turn(2.0, 1.0, [0.5])),
    ...         Way("two", 2, lambda: Turn(1.0, 1.0, [0.5])),
    ...         Way("wrong", 2, lambda: Turn(0.1, 1.0, [0.6]))]
    >>> [(row.name, row.status, row.train) for row in race(ways, rounds=2)]
    [('one', 'ok', [2.0, 2.0]), ('two', 'ok', [1.0, 1.0]), ('wrong', 'refused', [])]
    """
    rows = [Row(way.contestant, way.name, way.workers, way.networks) for way in ways]
    expected: dict[int, Any] = {}
    for number in range(rounds + 1):
        for way, row in zip(ways, rows, strict=True):
            if row.status != "ok":
                continue
            doing = f"round {number} of {rounds}" if number else "first turn, untimed"
            watch(rows, f"{way.contestant}, {way.name}, {doing}")
            try:
                with ImmediateInterrupt():  # a turn that Ctrl-C cuts short is no turn
                    turn = way.run()
            except Exception as error:
                row.status, row.note = "failed", sentence(error)
                row.train, row.test = [], []
                continue
            if not number:
                _admit(row, turn, expected)
                continue
            row.train.append(turn.train)
            row.communication, row.idle = turn.communication, turn.idle
            if turn.test is not None:
                row.test.append(turn.test)
    return rows


def _admit(row: Row, turn: Turn, expected: dict[int, Any]) -> None:
    """Refuse a way that learned something else than the first one with as many networks."""
    wanted = expected.setdefault(row.networks, np.asarray(turn.losses))
    apart = float(np.max(np.abs(np.asarray(turn.losses) / wanted - 1)))
    if not apart <= AGREE:
        row.status, row.note = "refused", f"its losses differ by {apart:.2g} of the others'"


def amdahl(speedups: dict[int, float]) -> float | None:
    """The share of the work that more workers do not speed up, fitted to measured speedups.

    Amdahl: 1 / speedup = serial + (1 - serial) / workers. None where there is nothing to fit.

    >>> amdahl({2: 2.0}), round(amdahl({2: 4 / 3, 4: 1.6}), 3)
    (0.0, 0.5)
    """
    points = [(1 - 1 / n, 1 / s - 1 / n) for n, s in speedups.items() if n > 1 and s > 0]
    if not points:
        return None
    lost = sum(x * y for x, y in points) / sum(x * x for x, _ in points)
    return min(1.0, max(0.0, lost))


def cpu_idle(run: Callable[[], Any], workers: int) -> tuple[Any, float, float]:
    """What a run gives, its seconds, and the share of the workers' time with nothing to do."""
    begin, before = time.perf_counter(), time.process_time()
    found = run()
    took, used = time.perf_counter() - begin, time.process_time() - before
    return found, took, max(0.0, 1 - used / (took * workers))


def tested(results: Sequence[Result], score: Callable[[Any], Any]) -> float:
    """Seconds to test the networks that were trained; a failure among them is raised."""
    for result in results:
        if result.error is not None:
            raise PareoError(result.error)
    many = [(result.trial.built, result.parameters) for result in results]
    begin = time.perf_counter()
    score(many)
    return time.perf_counter() - begin
