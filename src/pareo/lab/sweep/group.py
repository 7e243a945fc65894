"""Cells that stand at once: each in a process of its own, through the gate, timed in turn."""

import math
import time
from datetime import UTC, datetime
from itertools import count

from pareo.lab.experiment import statistics
from pareo.lab.experiment.worker import Failed, Worker
from pareo.lab.sweep.admission import Admission, end
from pareo.lab.sweep.cells import OK, Cell

SAID = 1.0  # seconds between two pictures of rounds under way


class Group:
    """Times the cells that an admission lets in, some at once."""

    def __init__(self, admission: Admission) -> None:
        self._admission, self.settings, self._say = admission, admission.settings, admission.say
        self.round, self.over = 0, False

    def run(self, cells: list[Cell]) -> None:
        """Build cells and time them: each tells what became of it. `over`: all rounds are."""
        self.over = False
        standing = self._admission.admitted(cells)
        racing = [cell for cell in cells if cell.key in standing]
        began = datetime.now(UTC).isoformat(timespec="microseconds")
        for cell in racing:
            cell.began = began
        self._rounds(racing, standing)
        self.over = True
        for cell in racing:
            if cell.status == OK:
                _close(cell, standing[cell.key])
            if cell.status == OK:
                self._admission.audit(cell, standing[cell.key])
        self._admission.dismiss(list(standing.values()))

    def crowded(self, cell: Cell) -> bool:
        """Whether a cell had no room beside others, and may have it alone."""
        return self._admission.crowded(cell)

    def _rounds(self, racing: list[Cell], standing: dict[tuple[str, int], Worker]) -> None:
        """Turns for everyone, until all is known well or the time is up."""
        seconds = self.settings.seconds * len({cell.batch for cell in racing})
        deadline = time.perf_counter() + seconds
        said = 0.0
        for self.round in count(1):
            began = time.perf_counter()
            if began - said > SAID:  # and drawing the table is not what the time is for
                self._say(f"{', '.join(cell.contestant for cell in racing)}: running")
                said = time.perf_counter()
                deadline, began = deadline + said - began, said
            for cell in racing:
                if cell.status == OK:
                    self._run(cell, standing[cell.key])
            now = time.perf_counter()
            if self._over(racing, now - began, deadline - now, seconds):
                return

    def _over(self, racing: list[Cell], took: float, left: float, more: float) -> bool:
        if self.settings.epochs is not None:
            return self.round >= self.settings.epochs
        known = all(statistics.enough(c.seconds_per_batch) for c in racing if c.status == OK)
        return known or ends(self.round, took, left, more)

    def _run(self, cell: Cell, worker: Worker) -> None:
        """One turn, which may be its last."""
        try:
            seconds, _, loss = worker.ask("run", patience=self.settings.patience)
        except Failed as failure:
            end(cell, worker, failure, f"in round {self.round}: ")
            return
        if not math.isfinite(loss):
            end(cell, worker, Failed(f"its loss became {loss} in round {self.round}"))
            return
        cell.seconds_per_batch.append(seconds)
        cell.rounds.append(self.round)


def ends(done: int, took: float, left: float, more: float) -> bool:
    """Whether no further round begins, which takes so long, with so much time left.

    Those that a verdict needs may have `more`, if it is enough for all of them.

    >>> [ends(done, took=2, left=1, more=9) for done in (2, 3, 7, 8)]
    [True, False, False, True]
    """
    missing = (statistics.FEWEST - done) * took
    return took > left and not 0 < missing <= left + more


def _close(cell: Cell, worker: Worker) -> None:
    """What is asked last: how it computed, and the memory that was predicted."""
    try:
        cell.ledger = worker.ask("ledger")
        cell.memory["program"] = worker.ask("predicted")
    except Failed as failure:
        end(cell, worker, failure)
