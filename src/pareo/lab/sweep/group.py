"""Cells that stand at once: each in a process of its own, through the gate, timed in turns."""

import time
from datetime import UTC, datetime

from pareo.lab.experiment import statistics
from pareo.lab.experiment.rounds import rounds
from pareo.lab.experiment.running import Running
from pareo.lab.sweep.admission import Cells
from pareo.lab.sweep.result import Cell

SAID = 1.0  # seconds between two tables while rounds are under way


class Group:
    """Times the cells that are admitted, several at once."""

    def __init__(self, admission: Cells) -> None:
        self._admission, self.settings = admission, admission.settings
        self.round, self.over = 0, False
        self._running: list[Running[Cell]] = []
        self._seconds = self._deadline = self._said = 0.0

    def run(self, cells: list[Cell]) -> None:
        """Build cells and time them; each then says what became of it. `over`: all rounds are."""
        self.over = False
        self._running = standing = self._admission.admitted(cells)
        began = datetime.now(UTC).isoformat(timespec="microseconds")
        for running in standing:
            running.entry.began = began
        self._seconds = self.settings.seconds * len({running.entry.batch for running in standing})
        self._deadline, self._said = time.perf_counter() + self._seconds, 0.0
        rounds(self._in_time, Running.run, self._last, self._begin_round)
        self.over = True
        for running in self._in_time():
            self._admission.finish(running)
        self._admission.dismiss(standing)

    def crowded(self, cell: Cell) -> bool:
        """Whether a cell had too little memory beside others, and may have enough alone."""
        return self._admission.crowded(cell)

    def _in_time(self) -> list[Running[Cell]]:
        return [running for running in self._running if running.ok]

    def _begin_round(self, number: int) -> None:
        """Show what is under way, at most once a second and not at the expense of the rounds."""
        self.round = number
        began = time.perf_counter()
        if began - self._said > SAID:
            names = ", ".join(running.entry.contestant for running in self._running)
            self._admission.say(f"{names}: running")
            self._said = time.perf_counter()
            self._deadline += self._said - began

    def _last(self, number: int, took: float) -> bool:
        if self.settings.epochs is not None:
            return number >= self.settings.epochs
        known = all(statistics.enough(r.entry.seconds_per_batch) for r in self._in_time())
        left = self._deadline - time.perf_counter()
        return known or ends(number, took, left, self._seconds)


def ends(done: int, took: float, left: float, more: float) -> bool:
    """Whether no further round begins, which takes so long, with so much time left.

    Rounds that a verdict needs may have `more`, if it is enough for all of them.

    >>> [ends(done, took=2, left=1, more=9) for done in (2, 3, 7, 8)]
    [True, False, False, True]
    """
    missing = (statistics.FEWEST - done) * took
    return took > left and not 0 < missing <= left + more
