"""Cells on their way in: a process for each, its first steps, its memory, and the gate."""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pareo.device import cores
from pareo.lab.contestants import Contestant
from pareo.lab.experiment.answers import Entrant
from pareo.lab.experiment.gate import audit
from pareo.lab.experiment.gate.parity import by_chance
from pareo.lab.experiment.gate.repeated_batch import BATCHES
from pareo.lab.experiment.worker import Failed, ShortOfMemory, Worker
from pareo.lab.machine import memory
from pareo.lab.sweep.cells import FAILED, MEMORY, OK, REFUSED, Cell
from pareo.lab.sweep.runner import CellRunner, warming
from pareo.lab.sweep.settings import Settings

CARD_TURN = 0.05  # seconds of a sample on a card, which is less disturbed than a CPU


class Admission:
    """Builds cells; `judge` is a worker that answers with the gate's references.

    On a card, processes start and import beside each other, those of the next cells too. Then one
    at a time computes: frameworks choose algorithms by timing them, and would choose badly on a
    busy card. On a CPU one alone takes all.
    """

    def __init__(
        self,
        settings: Settings,
        contestants: dict[str, Contestant],
        judge: Worker,
        say: Callable[[str], None],
    ) -> None:
        self.settings, self._contestants, self._judge = settings, contestants, judge
        self.say = say
        self._lock, self._judging = threading.Lock(), threading.Lock()
        self._standing: dict[tuple[str, int], Worker] = {}
        self._workers: list[Worker] = []  # all that may live
        self._ended = False
        self._beside = ThreadPoolExecutor(cores())
        self._coming: dict[tuple[str, int], Future[Worker]] = {}
        self._had: dict[tuple[str, int], int | None] = {}  # bytes that each process might have
        self._auditor: Worker | None = None

    def __enter__(self) -> "Admission":
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes; nobody waits for what is still under way."""
        with self._lock:
            self._ended = True
        for worker in (*self._workers, self._judge):
            worker.kill()
        self._beside.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.close()

    def warm(self, cells: list[Cell]) -> None:
        """Build those at the same time whose compilers keep their code on disk, and drop them.

        What is left to do when they stand is to choose by timing, one at a time.
        """
        some = [cell for cell in cells if self._contestants[cell.contestant].warms]
        if len(some) < 2:  # nobody to do it beside
            return
        self.say(f"{len(some)} cells of {some[0].contestant} and such: compiling beforehand")
        list(self._beside.map(self._warmed, some))

    def _warmed(self, cell: Cell) -> None:
        contestant, task = self._contestants[cell.contestant], self.settings.task(cell.batch)
        with suppress(Failed), self._started(Worker, warming, contestant, task) as worker:
            worker.ask(patience=self.settings.patience)

    def expect(self, cells: list[Cell]) -> None:
        """These will run soon: on a card their processes start now, beside others."""
        for cell in cells:
            if self._on_card(cell) and cell.key not in self._coming:
                self._coming[cell.key] = self._beside.submit(self._loaded, cell)

    def admitted(self, cells: list[Cell]) -> dict[tuple[str, int], Worker]:
        """The processes of those who passed the gate, ready to be timed; nobody imports by then."""
        self._standing = {}
        self.expect(cells)
        try:
            self._build(cells)
            wait(self._coming.values())
        except BaseException:  # Ctrl-C: no answer is waited for
            for worker in (*self._workers, self._judge):
                worker.kill()
            raise
        return self._standing

    def audit(self, cell: Cell, worker: Worker) -> None:
        """Refuse a cell that no longer trains, when its rounds are over."""
        if self._auditor is None:
            self._auditor = self._started(Worker, audit.reference, self.settings.task(1))
        try:
            found = worker.ask("audit", patience=self.settings.patience)
            exact = self._auditor.ask(cell.batch)
        except Failed as failure:
            end(cell, worker, failure, "after the last round: ")
            return
        if refusal := audit.refusal(found, exact, self.settings.precision):
            cell.end(REFUSED, refusal)

    def dismiss(self, workers: list[Worker]) -> None:
        """Let processes end that have done their work, all at the same time."""
        for worker in workers:
            worker.dismiss()
        for worker in workers:
            worker.close()
            self._workers.remove(worker)

    def _on_card(self, cell: Cell) -> bool:
        return self._contestants[cell.contestant].gpu

    def _build(self, cells: list[Cell]) -> None:
        """Everyone's first steps, memory and gate, one at a time, in the order they are ready."""
        judged: list[tuple[Cell, Worker, Future[Any]]] = []
        coming = {self._coming.pop(c.key): c for c in cells if c.key in self._coming}
        for future in as_completed(coming):
            self._enter(coming[future], future.result, judged)
        wait(self._coming.values())
        for cell in cells:
            if not self._on_card(cell):
                self._enter(cell, partial(self._loaded, cell), judged)
                self._judge_all(judged)
        self._judge_all(judged)

    def _loaded(self, cell: Cell) -> Worker:
        """A cell's process, with its libraries imported and the gate's reference there."""
        contestant, task = self._contestants[cell.contestant], self.settings.task(cell.batch)
        started = time.perf_counter()
        most = self._had[cell.key] = self._most(contestant)
        worker = self._started(Entrant, CellRunner, contestant, task, memory=most)
        try:
            worker.ask("load", patience=self.settings.patience)
            self._exact(cell.batch, 0)
        except Failed:
            worker.close()
            raise
        cell.phases = {"loading": time.perf_counter() - started}
        return worker

    def _started(self, kind: type[Worker], *what: Any, memory: int | None = None) -> Worker:
        with self._lock:
            if self._ended:
                raise Failed("the sweep is over")
            worker = kind(*what, threads=self.settings.threads, memory=memory)
            self._workers.append(worker)
        return worker

    def _enter(
        self,
        cell: Cell,
        loaded: Callable[[], Worker],
        judged: list[tuple[Cell, Worker, Future[Any]]],
    ) -> None:
        """A cell's first steps, its memory, and what the gate will judge."""
        self.say(f"{cell.contestant}, batch {cell.batch}: building, first steps")
        worker, patience, started = None, self.settings.patience, time.perf_counter()
        try:
            worker = loaded()
            started = time.perf_counter()
            cell.memory = worker.ask("footprint", patience=patience)
            cell.phases["building"] = time.perf_counter() - started
            worker.unlimit()  # the gate's copies are the lab's own
            worker.ask("gate_steps", 0, patience=patience)
            cell.turn = worker.ask("ready", *self._turn(cell), patience=patience)
            cell.steps = cell.turn["steps"]
            cell.first_call = worker.ask("first_call")
            file = self._exact(cell.batch, 0)
        except Failed as failure:
            end(cell, worker, failure)
            return
        cell.phases["ready"] = time.perf_counter() - started
        judged.append((cell, worker, self._beside.submit(self._judgement, worker, file)))

    def _judgement(self, worker: Worker, file: Path) -> Any:
        return worker.ask("gate_judgement", file, patience=self.settings.patience)

    def _judge_all(self, judged: list[tuple[Cell, Worker, Future[Any]]]) -> None:
        """Let those stand whom the gate lets through; who may have met a kink tries again."""
        for cell, worker, judgement in judged:
            try:
                if refused := self._refusal(cell, worker, judgement.result()):
                    cell.end(REFUSED, refused)
                    worker.close()
                    continue
            except Failed as failure:
                end(cell, worker, failure)
                continue
            cell.status = OK
            self._standing[cell.key] = worker
        judged.clear()

    def _refusal(self, cell: Cell, worker: Worker, first: tuple[str, dict[str, float]]) -> str:
        """Why the gate refuses a cell: what differs, on each of the images that it tried."""
        differs, cell.parity = first
        refusals = [differs]
        for which in range(1, BATCHES):
            if not differs:
                return ""
            if not by_chance(cell.parity):
                break
            worker.ask("gate_steps", which, patience=self.settings.patience)
            differs, cell.parity = self._judgement(worker, self._exact(cell.batch, which))
            worker.ask("restart", patience=self.settings.patience)
            refusals.append(differs)
        if not differs:
            return ""
        again = f"; and so on other images, {len(refusals)} times" if len(refusals) > 1 else ""
        return refusals[0] + again

    def _exact(self, batch: int, which: int) -> Path:
        """The file of an exact step, computed when it is first asked for."""
        with self._judging:
            file: Path = self._judge.ask(batch, which)
        return file

    def _most(self, contestant: Contestant) -> int | None:
        """The bytes that a process may have: what was asked for, else most of what is free."""
        if contestant.gpu:
            return None
        sizes = memory.safe(), self.settings.memory_limit
        return min((size for size in sizes if size is not None), default=None)

    def crowded(self, cell: Cell) -> bool:
        """Whether a cell had no room beside others, and may have it alone."""
        asked = self.settings.memory_limit
        had = self._had.get(cell.key)
        return cell.status == MEMORY and (asked is None or had is None or had < asked)

    def drop(self, cells: list[Cell]) -> None:
        """These will not run after all: processes that were started for them end."""
        for cell in cells:
            future = self._coming.pop(cell.key, None)
            if future is not None and not future.cancel():
                with suppress(Failed):
                    self.dismiss([future.result()])

    def _turn(self, cell: Cell) -> tuple[int, float, bool]:
        """Steps of a turn, the seconds that it may take, and whether it may be longer."""
        if self.settings.epochs is None:
            on_card = self._contestants[cell.contestant].gpu
            most = min(self.settings.turn, CARD_TURN) if on_card else self.settings.turn
            return 10**6, most, True
        images = self.settings.task(cell.batch).count()
        return math.ceil(images / cell.batch), math.inf, False


def end(cell: Cell, worker: Worker | None, failure: Failed, when: str = "") -> None:
    """A cell that failed says why, and its process ends."""
    cell.end(MEMORY if isinstance(failure, ShortOfMemory) else FAILED, f"{when}{failure}")
    if worker is not None:
        worker.close()
