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
from pareo.lab.experiment.conditions import Conditions
from pareo.lab.experiment.gate.parity import by_chance
from pareo.lab.experiment.gate.repeated_batch import BATCHES
from pareo.lab.experiment.running import Running, end
from pareo.lab.experiment.worker import Failed, Worker
from pareo.lab.machine import memory
from pareo.lab.sweep.result import Cell, Memory
from pareo.lab.sweep.runner import CellRunner, warming
from pareo.lab.sweep.settings import Settings

GPU_TURN = 0.05  # seconds of a sample on a GPU, which is less disturbed than a CPU
Key = tuple[str, int]


class Cells:
    """Builds cells, and admits those whose first steps are right.

    On a GPU, processes start and import at the same time, those of the next cells too. Then one at
    a time computes: frameworks choose algorithms by timing them, and would choose badly on a busy
    GPU. On a CPU one process at a time has all cores.
    """

    def __init__(
        self,
        settings: Settings,
        contestants: dict[str, Contestant],
        judge: Worker,
        say: Callable[[str], None],
    ) -> None:
        """`judge` is a worker that answers with files of exact steps, and with audits."""
        self.settings, self._contestants, self._judge = settings, contestants, judge
        self.say = say
        self._lock, self._judging = threading.Lock(), threading.Lock()
        self._workers: list[Worker] = []  # all that may live
        self._ended = False
        self._pool = ThreadPoolExecutor(cores())
        self._coming: dict[Key, Future[Running[Cell]]] = {}
        self._allowed: dict[Key, int | None] = {}  # bytes that each process might have
        self._conditions = {
            gpu: Conditions.of(gpu) for gpu in {one.gpu for one in contestants.values()}
        }
        for one in self._conditions.values():
            one.rest()

    def __enter__(self) -> "Cells":
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes without waiting for what is still under way."""
        with self._lock:
            self._ended = True
        for worker in (*self._workers, self._judge):
            worker.kill()
        self._pool.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.close()

    def warm(self, cells: list[Cell]) -> None:
        """Build the cells whose compilers keep their code on disk, all at once, and drop them.

        Later only the choice by timing is left to do, one cell at a time.
        """
        some = [cell for cell in cells if self._contestants[cell.contestant].warms]
        if len(some) < 2:  # there is nothing to do at the same time
            return
        self.say(f"{len(some)} cells of {some[0].contestant} and such: compiling beforehand")
        list(self._pool.map(self._warmed, some))

    def _warmed(self, cell: Cell) -> None:
        contestant, task = self._contestants[cell.contestant], self.settings.task(cell.batch)
        with suppress(Failed), self._started(Worker, warming, contestant, task) as worker:
            worker.ask(patience=self.settings.patience)

    def expect(self, cells: list[Cell]) -> None:
        """These will run soon: on a GPU their processes start now, while others run."""
        for cell in cells:
            if self._on_gpu(cell) and cell.key not in self._coming:
                self._coming[cell.key] = self._pool.submit(self._loaded, cell)

    def admitted(self, cells: list[Cell]) -> list[Running[Cell]]:
        """The cells that passed the gate, ready to be timed; no process imports by then."""
        self.expect(cells)
        try:
            standing = self._build(cells)
            wait(self._coming.values())
        except BaseException:  # Ctrl-C: no answer is waited for
            for worker in (*self._workers, self._judge):
                worker.kill()
            raise
        return standing

    def finish(self, running: Running[Cell]) -> None:
        """When its rounds are over: how it computed, its predicted memory, whether it trains."""
        running.finish(self._judge, self.settings.precision)
        if running.ok:
            running.entry.memory.program = running.ask("predicted")

    def dismiss(self, standing: list[Running[Cell]]) -> None:
        """End processes that have done their work, all at the same time."""
        for running in standing:
            running.worker.dismiss()
        for running in standing:
            running.worker.close()
            self._workers.remove(running.worker)

    def _on_gpu(self, cell: Cell) -> bool:
        return self._contestants[cell.contestant].gpu

    def _build(self, cells: list[Cell]) -> list[Running[Cell]]:
        """First steps, memory and gate, one cell at a time, in the order they are ready."""
        entered: list[tuple[Running[Cell], Future[Any]]] = []
        coming = {self._coming.pop(c.key): c for c in cells if c.key in self._coming}
        for future in as_completed(coming):
            self._enter(coming[future], future.result, entered)
        wait(self._coming.values())
        standing = []
        for cell in cells:
            if not self._on_gpu(cell):
                self._enter(cell, partial(self._loaded, cell), entered)
                standing += self._passed(entered)
        return standing + self._passed(entered)

    def _loaded(self, cell: Cell) -> Running[Cell]:
        """A cell's process, with its libraries imported and the gate's reference computed."""
        contestant, task = self._contestants[cell.contestant], self.settings.task(cell.batch)
        started = time.perf_counter()
        most = self._allowed[cell.key] = self._most(contestant)
        worker = self._started(Entrant, CellRunner, contestant, task, memory=most)
        running = Running(cell, task, worker, 1.0, self.settings.patience, short="memory")
        running.conditions = self._conditions[contestant.gpu]
        try:
            worker.ask("load", patience=self.settings.patience)
            self._exact(cell.batch, 0)
        except Failed:
            worker.close()
            raise
        cell.phases = {"loading": time.perf_counter() - started}
        return running

    def _started(self, kind: type[Any], *what: Any, memory: int | None = None) -> Any:
        with self._lock:
            if self._ended:
                raise Failed("the sweep is over")
            worker = kind(*what, threads=self.settings.threads, memory=memory)
            self._workers.append(worker)
        return worker

    def _enter(
        self,
        cell: Cell,
        loaded: Callable[[], Running[Cell]],
        entered: list[tuple[Running[Cell], Future[Any]]],
    ) -> None:
        """A cell's first steps, its memory, its turns, and what the gate will judge."""
        self.say(
            f"{cell.contestant}, batch {cell.batch}: building, first steps and the same in float64"
        )
        running, patience = None, self.settings.patience
        try:
            running = loaded()
            started = time.perf_counter()
            cell.memory = Memory(**running.worker.ask("footprint", patience=patience))
            cell.phases["building"] = time.perf_counter() - started
            running.worker.unlimit()  # the gate's copies are the lab's own
            running.worker.ask("gate_steps", 0, patience=patience)
            running.prepare(*self._turn(cell))
            file = self._exact(cell.batch, 0)
        except Failed as failure:
            end(cell, failure) if running is None else running.fail(failure)
            return
        if not running.ok:
            return
        cell.steps = cell.turn.steps
        cell.phases["ready"] = time.perf_counter() - started
        entered.append((running, self._pool.submit(self._judgement, running, file)))

    def _judgement(self, running: Running[Cell], file: Path) -> Any:
        return running.worker.ask("gate_judgement", file, patience=self.settings.patience)

    def _passed(self, entered: list[tuple[Running[Cell], Future[Any]]]) -> list[Running[Cell]]:
        """Those whom the gate admits; a cell that may have met a kink tries again."""
        passed = []
        for running, judgement in entered:
            try:
                refused = self._refusal(running, judgement.result())
            except Failed as failure:
                running.fail(failure)
                continue
            if refused:
                running.refuse(refused)
            else:
                running.entry.status = "ok"
                passed.append(running)
        entered.clear()
        return passed

    def _refusal(self, running: Running[Cell], first: tuple[str, dict[str, float]]) -> str:
        """Why the gate refuses a cell: what differs, on each of the images that it tried."""
        cell, worker, patience = running.entry, running.worker, self.settings.patience
        differs, error = first
        refusals = [differs]
        for which in range(1, BATCHES):
            cell.parity = {**error}
            if not differs:
                return ""
            if not by_chance(error):
                break
            worker.ask("gate_steps", which, patience=patience)
            differs, error = self._judgement(running, self._exact(cell.batch, which))
            worker.ask("restart", patience=patience)
            refusals.append(differs)
        cell.parity = {**error}
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
        """The bytes that a process may have: what was asked for, otherwise most of what is free."""
        if contestant.gpu:
            return None
        sizes = memory.safe(), self.settings.memory_limit
        return min((size for size in sizes if size is not None), default=None)

    def crowded(self, cell: Cell) -> bool:
        """Whether a cell had too little memory beside others, and may have enough alone."""
        asked, had = self.settings.memory_limit, self._allowed.get(cell.key)
        return cell.status == "memory" and (asked is None or had is None or had < asked)

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
            turn = self.settings.turn
            return 10**6, min(turn, GPU_TURN) if self._on_gpu(cell) else turn, True
        images = self.settings.task(cell.batch).count()
        return math.ceil(images / cell.batch), math.inf, False
