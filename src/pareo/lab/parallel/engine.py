"""A race of strategies to use all cores: turns in rounds, each after an untimed first turn.

A strategy trains and tests, and reports how long that took and what was learned. Only strategies
that learn the same as the first one are timed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo.interrupt import ImmediateInterrupt
from pareo.lab.experiment.rounds import rounds
from pareo.lab.parallel.result import Row
from pareo.lab.parallel.speedup import compare_with_one_worker
from pareo.parallel.group.errors import sentence

AGREE = 2e-3  # of a loss after an epoch: float32's rounding, grown over hundreds of steps


@dataclass(frozen=True)
class Turn:
    """One turn of a strategy.

    train, test: seconds; `test` is None where nothing was tested
    losses: the mean loss of each network that was trained
    communication, idle: shares of all workers' time; None where not known
    """

    train: float
    test: float | None
    losses: Sequence[float]
    communication: float | None = None
    idle: float | None = None


@dataclass(frozen=True)
class Strategy:
    """A way to use a number of workers for a number of networks; `run` takes one turn.

    missing: why it cannot run here; empty where it can.
    """

    name: str
    workers: int
    run: Callable[[], Turn]
    contestant: str = "pareo"
    networks: int = 1
    missing: str = ""


Watch = Callable[[list[Row], str], None]


def race(
    strategies: Sequence[Strategy], count: int, watch: Watch = lambda rows, doing: None
) -> list[Row]:
    """A number of timed rounds; a strategy that fails or is refused is a row that says why.

    The losses of the first strategy for as many networks are the reference.

    >>> entered = [Strategy("one", 1, lambda: Turn(2.0, 1.0, [0.5])),
    ...            Strategy("two", 2, lambda: Turn(1.0, 1.0, [0.5])),
    ...            Strategy("wrong", 2, lambda: Turn(0.1, 1.0, [0.6]))]
    >>> [(row.name, row.status, row.train) for row in race(entered, 2)]
    [('one', 'ok', [2.0, 2.0]), ('two', 'ok', [1.0, 1.0]), ('wrong', 'refused', [])]
    """
    rows = [Row(one.contestant, one.name, one.workers, one.networks) for one in strategies]
    pairs = list(zip(strategies, rows, strict=True))
    expected: dict[int, Any] = {}

    def run(strategy: Strategy, row: Row, doing: str) -> Turn | None:
        compare_with_one_worker(rows)
        watch(rows, f"{row.contestant}, {row.name}, {doing}")
        try:
            with ImmediateInterrupt():  # a turn that Ctrl-C cuts short does not count
                return strategy.run()
        except Exception as error:
            row.end("failed", sentence(error))
            return None

    def turn(pair: tuple[Strategy, Row], number: int) -> None:
        strategy, row = pair
        if found := run(strategy, row, f"round {number} of {count}"):
            row.add(found.train, found.test)
            row.communication, row.idle = found.communication, found.idle

    for strategy, row in pairs:
        if strategy.missing:
            row.end("missing", strategy.missing)
        elif found := run(strategy, row, "first turn, untimed"):
            _admit(row, found, expected)
    rounds(
        lambda: [pair for pair in pairs if pair[1].status == "ok"],
        turn,
        lambda number, seconds: number >= count,
    )
    compare_with_one_worker(rows)
    return rows


def _admit(row: Row, turn: Turn, expected: dict[int, Any]) -> None:
    """Refuse a strategy that learned something else than the first with as many networks."""
    wanted = expected.setdefault(row.networks, np.asarray(turn.losses))
    difference = float(np.max(np.abs(np.asarray(turn.losses) / wanted - 1)))
    if not difference <= AGREE:
        row.end("refused", f"its losses differ by {difference:.2g} of the others'")
