"""Cells that stand at once: each in a process of its own, through the gate, timed in turn."""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

from pareo.device import cores
from pareo.lab import measure, memory
from pareo.lab.contestants import Contestant, Task
from pareo.lab.parity import TOLERANCES
from pareo.lab.processes import Failed, ShortOfMemory, Worker
from pareo.lab.sweep import gate
from pareo.lab.sweep.cells import FAILED, MEMORY, OK, REFUSED, Cell
from pareo.lab.sweep.runner import CellRunner
from pareo.lab.sweep.settings import Settings

SHARE_OF_FREE = 0.85  # of the free memory that one more process may have
CARD_TURN = 0.15  # seconds of a sample on a card, which is less disturbed than a CPU


class Group:
    """Builds and times cells; `judge` is a worker that answers with the gate's references."""

    def __init__(
        self,
        settings: Settings,
        contestants: dict[str, Contestant],
        judge: Worker,
        say: Callable[[str], None],
    ) -> None:
        self.settings, self._contestants, self._judge = settings, contestants, judge
        self._say, self.round = say, 0
        self._lock, self._judging, self._alone = (threading.Lock() for _ in range(3))
        self._standing: dict[tuple[str, int], Worker] = {}
        self._building: list[Worker] = []
        self._interrupted = False

    def run(self, cells: list[Cell], ready: Callable[[], Any]) -> None:
        """Build cells, wait for `ready`, and time them: each tells what became of it."""
        self._standing, self._building = {}, []
        with ExitStack() as stack:
            self._build(cells, stack)
            ready()
            racing = [cell for cell in cells if cell.key in self._standing]
            self._rounds(racing)
            for cell in racing:
                if cell.status == OK:
                    self._close(cell)
            for worker in self._standing.values():
                worker.dismiss()

    def _build(self, cells: list[Cell], stack: ExitStack) -> None:
        if not cells:
            return
        on_card = any(self._contestants[cell.contestant].gpu for cell in cells)
        builders = cores() if on_card else 1  # on a CPU one alone takes all of it
        with ThreadPoolExecutor(builders) as pool:
            try:
                list(pool.map(lambda cell: self._enter(cell, stack), cells))
            except BaseException:  # Ctrl-C: nobody waits for what is being built
                self._interrupted = True
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in (*self._building, self._judge):
                    worker.kill()
                raise

    def _enter(self, cell: Cell, stack: ExitStack) -> None:
        """A cell's process: its first steps, its memory, and the gate.

        Libraries are imported beside each other. Then one at a time computes: frameworks choose
        algorithms by timing them, and would choose badly on a busy card.
        """
        contestant, task = self._contestants[cell.contestant], self.settings.task(cell.batch)
        most = self._most(contestant)
        worker = Worker(CellRunner, contestant, task, threads=task.threads, memory=most)
        with self._lock:
            stack.enter_context(worker)
            self._building.append(worker)
        patience = self.settings.patience
        try:
            worker.ask("load", patience=patience)
            self._exact(cell.batch, 0)
            with self._alone:
                self._say(f"{cell.contestant}, batch {cell.batch}: building, first steps")
                cell.memory = worker.ask("footprint", patience=patience)
                worker.unlimit()  # the gate's copies are the lab's own
                if differs := self._refusal(cell, worker, task):
                    cell.end(REFUSED, differs)
                    worker.close()
                    return
                cell.steps = worker.ask("ready", *self._turn(cell), patience=patience)
            cell.first_call = worker.ask("first_call")
        except Failed as failure:
            if not self._interrupted:
                _end(cell, worker, failure)
            return
        cell.status = OK
        self._standing[cell.key] = worker

    def _refusal(self, cell: Cell, worker: Worker, task: Task) -> str:
        """Why the gate refuses a cell: what differs, on each of the images that it tried."""
        allowed, refusals = TOLERANCES[self.settings.precision], []
        for which in range(gate.BATCHES):
            file = self._exact(cell.batch, which)
            differs, cell.parity = worker.ask(
                "pass_gate", file, which, allowed, patience=self.settings.patience
            )
            if not differs:
                return ""
            refusals.append(differs)
            if not gate.may_try_again(task, cell.parity, allowed):
                break
        return "; and ".join(refusals)

    def _exact(self, batch: int, which: int) -> Path:
        """The file of an exact step, computed when it is first asked for."""
        with self._judging:
            file: Path = self._judge.ask(batch, which)
        return file

    def _most(self, contestant: Contestant) -> int | None:
        """The bytes that a process may have: what was asked for, else most of what is free."""
        if contestant.gpu:
            return None
        free = memory.free()
        safe = None if free is None else int(SHARE_OF_FREE * free)
        asked = self.settings.memory_limit
        return safe if asked is None else asked

    def _turn(self, cell: Cell) -> tuple[int, float]:
        """Steps of a turn, and the seconds that it may take."""
        if self.settings.epochs is None:
            on_card = self._contestants[cell.contestant].gpu
            return 10**6, min(self.settings.turn, CARD_TURN) if on_card else self.settings.turn
        images = len(self.settings.task(cell.batch).data()[1])
        return math.ceil(images / cell.batch), math.inf

    def _rounds(self, racing: list[Cell]) -> None:
        """Turns for everyone, until all is known well or the time is up."""
        batches = {cell.batch for cell in racing}
        deadline = time.perf_counter() + self.settings.seconds * len(batches)
        for self.round in count(1):
            began = time.perf_counter()
            for cell in racing:
                if cell.status == OK:
                    self._say(f"{cell.contestant}, batch {cell.batch}: running")
                    self._run(cell, self._standing[cell.key])
            if self._over(racing, deadline - (time.perf_counter() - began)):
                return

    def _over(self, racing: list[Cell], last_start: float) -> bool:
        if self.settings.epochs is not None:
            return self.round >= self.settings.epochs
        known = all(measure.enough(c.seconds_per_batch) for c in racing if c.status == OK)
        return known or time.perf_counter() > last_start

    def _run(self, cell: Cell, worker: Worker) -> None:
        """One turn, which may be its last."""
        try:
            seconds, loss = worker.ask("run", patience=self.settings.patience)
        except Failed as failure:
            _end(cell, worker, failure, f"in round {self.round}: ")
            return
        if not math.isfinite(loss):
            _end(cell, worker, Failed(f"its loss became {loss} in round {self.round}"))
            return
        cell.seconds_per_batch.append(seconds)
        cell.rounds.append(self.round)

    def _close(self, cell: Cell) -> None:
        """What is asked last: how it computed, and the memory that was predicted."""
        worker = self._standing[cell.key]
        try:
            cell.ledger = worker.ask("ledger")
            cell.memory["program"] = worker.ask("predicted")
        except Failed as failure:
            _end(cell, worker, failure)


def _end(cell: Cell, worker: Worker, failure: Failed, when: str = "") -> None:
    cell.end(MEMORY if isinstance(failure, ShortOfMemory) else FAILED, f"{when}{failure}")
    worker.close()
