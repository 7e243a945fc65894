"""The sweep: every contestant at every batch size, each cell in a process of its own.

The cells of one batch size (or of several, where the machine is large) stand at once and take
turns, so what slows the machine for a while slows all of them. Whatever is finished is in the
journal: a sweep that was ended, even by SIGKILL, goes on from there.
"""

import math
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from pareo import __version__, machine
from pareo.device import Device, cores, why_unavailable
from pareo.lab import measure, memory
from pareo.lab.ceilings import limits
from pareo.lab.contestants import Contestant
from pareo.lab.contestants.registry import chosen
from pareo.lab.floors import CARD, CPU, place_of
from pareo.lab.parity import TOLERANCES
from pareo.lab.processes import Failed, ShortOfMemory, Worker
from pareo.lab.sweep import gate
from pareo.lab.sweep.cells import FAILED, MEMORY, MISSING, OK, REFUSED, WAITING, Cell, from_dict
from pareo.lab.sweep.journal import Journal
from pareo.lab.sweep.limit import Limits
from pareo.lab.sweep.runner import CellRunner
from pareo.lab.sweep.settings import Settings
from pareo.lab.train_speed import plain
from pareo.training.step import step_program

SCHEMA = 1
SHARE_OF_FREE = 0.85  # of the free memory that one more process may have
CORES_TO_BUILD = 2  # for a contestant on a GPU; on a CPU one is built at a time


class Sweep:
    """A sweep under way: `run` it, and look at `cells`, `doing` and `round` while it runs."""

    def __init__(
        self,
        settings: Settings,
        watch: Callable[["Sweep"], None] = lambda sweep: None,
        folder: Path | None = None,
    ) -> None:
        self.settings, self._watch = settings, watch
        self._contestants = {
            name: one.in_precision(settings.precision)
            for name, one in chosen(list(settings.contestants)).items()
        }
        task = settings.task(settings.batches[0])
        task.data()  # what is wrong with it is said before anything begins
        usual = "mnist" if task.network.inputs == (1, 28, 28) else "made-up images"
        self._data = settings.data or usual
        self.cells = {
            (name, batch): Cell(name, batch)
            for batch in settings.batches
            for name in self._contestants
        }
        self.doing, self.round, self.resumed = "", 0, 0
        self.ceilings: dict[str, list[tuple[float, float]]] = {}
        self.limits: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._work: dict[int, dict[str, Any]] = {}
        self._journal = Journal(self._about(), folder)
        self._probes: list[dict[str, Any]] = []
        for line in self._journal.lines:
            self._remember(line)

    def run(self) -> dict[str, Any]:
        """Everything that is not done yet; the result."""
        idle = machine.idle_cores()
        with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="pareo-") as folder:
            self._measure()
            task = self.settings.task(1)
            judge = Worker(gate.reference, task, Path(folder), threads=task.threads)
            self._judge = stack.enter_context(judge)
            sizes, abreast = self.settings.batches, self.settings.abreast
            for first in range(0, len(sizes), abreast):
                self._group(sizes[first : first + abreast])
            self._search()
            self._measure()
        found = self.result(idle)
        self._journal.finish()
        return found

    def close(self) -> None:
        """Leave what is done for the next time."""
        self._journal.close()

    def result(self, idle_cores: float | None = None) -> dict[str, Any]:
        """Everything that is known, as JSON has it: docs/sweep-json.md says what is what."""
        found = {
            "schema": SCHEMA,
            "kind": "sweep",
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": {**machine.describe(), "idle_cores": idle_cores},
            "versions": {"pareo": __version__, **machine.libraries()},
            **self.shown(),
        }
        return dict(plain(found))

    def shown(self) -> dict[str, Any]:
        """What changes while it runs, and what a table needs beside it."""
        return {
            "network": self.settings.network,
            "data": self._data,
            "precision": self.settings.precision,
            "settings": self.settings.as_dict(),
            "work": [self.work(batch) for batch in self.settings.batches],
            "ceilings": [self.ceiling(place) for place in sorted(self.places())],
            "cells": [
                {**cell.as_dict(), "place": place_of(self._contestants[cell.contestant])}
                for cell in self.cells.values()
            ],
            "limits": self.limits,
        }

    def places(self) -> set[str]:
        """Where contestants compute."""
        return {place_of(one) for one in self._contestants.values()}

    def ceiling(self, place: str) -> dict[str, Any]:
        """The best that was measured in a place."""
        found = self.ceilings.get(place, [])
        return {
            "place": place,
            "peak_flops": max((peak for peak, _ in found), default=None),
            "bandwidth": max((speed for _, speed in found), default=None),
        }

    def work(self, batch: int) -> dict[str, Any]:
        """What a step is: its FLOPs, the least bytes, and all that its instructions move."""
        if batch in self._work:
            return self._work[batch]
        task = self.settings.task(batch)
        program = step_program(task.network, batch)
        self._work[batch] = {
            "batch": batch,
            "flops": program.flops,
            "least_bytes": task.least_bytes(),
            "moved_bytes": program.bytes,
        }
        return self._work[batch]

    def _about(self) -> dict[str, Any]:
        """What must be the same for a sweep to be gone on with."""
        here = machine.describe()
        return {
            "settings": self.settings.as_dict(),
            "versions": {"pareo": __version__, **machine.libraries()},
            "machine": [here["processor"], here["cores"]],
        }

    def _remember(self, line: dict[str, Any]) -> None:
        if "cell" in line:
            cell = from_dict(line["cell"])
            if cell.key in self.cells:
                self.cells[cell.key] = cell
                self.resumed += 1
        elif "probe" in line:
            self._probes.append(line["probe"])
        elif "ceiling" in line:
            place, peak, bandwidth = line["ceiling"]
            self.ceilings.setdefault(place, []).append((peak, bandwidth))

    def _say(self, doing: str) -> None:
        with self._lock:
            self.doing = doing
            self._watch(self)

    def _measure(self) -> None:
        """How fast each place is, as it is kept or as it is now; what cannot be told is unknown."""
        self._say("measuring this machine's limits")
        devices = {CPU: Device("compiled", threads=self.settings.threads)}
        if CARD in self.places() and why_unavailable("cuda") is None:
            devices[CARD] = Device("cuda", precision=self.settings.precision)
        for place in sorted(self.places() & devices.keys()):
            known = self.ceilings.setdefault(place, [])
            with suppress(Failed, LookupError):
                found = limits(devices[place], again=bool(known))
                known.append((found.peak.value, found.bandwidth.value))
                self._journal.add({"ceiling": [place, *known[-1]]})

    def _group(self, batches: tuple[int, ...]) -> None:
        """The cells of some batch sizes that are not done yet; alone who had no room beside others.

        They are built, timed in turn, and written down.
        """
        here = [self.cells[name, b] for b in batches for name in self._contestants]
        waiting = [cell for cell in here if cell.status == WAITING]
        for cell in waiting:
            self._exclude(cell)
        crowded = self._together([cell for cell in waiting if cell.status == WAITING])
        for cell in waiting:
            if cell not in crowded:
                self._done(cell)
        for cell in crowded:
            cell.status = WAITING
            self._together([cell])
            self._done(cell)

    def _exclude(self, cell: Cell) -> None:
        """A cell that need not be tried gets its reason."""
        contestant = self._contestants[cell.contestant]
        smaller = [one for one in self.cells.values() if one.contestant == cell.contestant]
        short = [one.batch for one in smaller if one.status == MEMORY and one.batch < cell.batch]
        if reason := contestant.missing():
            cell.end(MISSING, reason)
        elif self.settings.precision != "float32" and not contestant.gpu:
            cell.end(MISSING, f"it computes in float32 only, not in {self.settings.precision}")
        elif short:
            cell.end(MEMORY, f"batch {min(short)} did not fit")

    def _done(self, cell: Cell) -> None:
        self._journal.add({"cell": plain(cell.as_dict())})
        self._say(f"{cell.contestant}, batch {cell.batch}: done")

    def _together(self, cells: list[Cell]) -> list[Cell]:
        """Build and time cells that stand at once; those that found no room beside the others."""
        self._building: list[Worker] = []
        with ExitStack() as stack:
            standing: dict[tuple[str, int], Worker] = {}
            on_card = any(self._contestants[cell.contestant].gpu for cell in cells)
            builders = max(1, cores() // CORES_TO_BUILD) if on_card else 1
            with ThreadPoolExecutor(builders) as pool:
                try:
                    list(pool.map(lambda cell: self._enter(cell, standing, stack), cells))
                except BaseException:  # Ctrl-C: nobody waits for what is being built
                    pool.shutdown(wait=False, cancel_futures=True)
                    for worker in self._building:
                        worker.kill()
                    raise
            racing = [cell for cell in cells if cell.key in standing]
            self._rounds(racing, standing)
            for cell in racing:
                if cell.status == OK:
                    self._close(cell, standing[cell.key])
            for worker in standing.values():
                worker.dismiss()
        short = [cell for cell in cells if cell.status == MEMORY]
        return short if len(cells) > 1 and self.settings.memory_limit is None else []

    def _enter(self, cell: Cell, standing: dict[tuple[str, int], Worker], stack: ExitStack) -> None:
        """A cell's process: its first steps, its memory, and the gate."""
        self._say(f"{cell.contestant}, batch {cell.batch}: building, first steps")
        contestant, task = self._contestants[cell.contestant], self.settings.task(cell.batch)
        worker = Worker(
            CellRunner, contestant, task, threads=task.threads, memory=self._most(contestant)
        )
        with self._lock:
            stack.enter_context(worker)
            self._building.append(worker)
        patience = self.settings.patience
        try:
            cell.memory = worker.ask("footprint", patience=patience)
            worker.unlimit()  # the gate's copies are the lab's own
            with self._lock:
                file = self._judge.ask(cell.batch)
            allowed = TOLERANCES[self.settings.precision]
            differs, cell.parity = worker.ask("pass_gate", file, allowed, patience=patience)
            if differs:
                cell.end(REFUSED, differs)
                worker.close()
                return
            cell.steps = worker.ask("ready", *self._turn(cell), patience=patience)
            cell.first_call = worker.ask("first_call")
        except Failed as failure:
            _end(cell, worker, failure)
            return
        cell.status = OK
        standing[cell.key] = worker

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
            return 10**6, self.settings.turn
        images = len(self.settings.task(cell.batch).data()[1])
        return math.ceil(images / cell.batch), math.inf

    def _rounds(self, racing: list[Cell], standing: dict[tuple[str, int], Worker]) -> None:
        """Turns for everyone, until all is known well or the time is up."""
        batches = {cell.batch for cell in racing}
        deadline = time.perf_counter() + self.settings.seconds * len(batches)
        for self.round in count(1):
            began = time.perf_counter()
            for cell in racing:
                if cell.status == OK:
                    self._say(f"{cell.contestant}, batch {cell.batch}: running")
                    self._run(cell, standing[cell.key])
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

    def _close(self, cell: Cell, worker: Worker) -> None:
        """What is asked last: how it computed, and the memory that was predicted."""
        try:
            cell.ledger = worker.ask("ledger")
            cell.memory["program"] = worker.ask("predicted")
        except Failed as failure:
            _end(cell, worker, failure)

    def _search(self) -> None:
        """The largest batch that fits, where there is a limit to fit under."""
        search = Limits(self.settings, self._probes, self._journal, self._say)
        for name, contestant in self._contestants.items():
            if contestant.missing() or not search.wanted(contestant):
                continue
            known = [cell for cell in self.cells.values() if cell.contestant == name]
            self.limits.append(search.largest(name, contestant, known))


def _end(cell: Cell, worker: Worker, failure: Failed, when: str = "") -> None:
    cell.end(MEMORY if isinstance(failure, ShortOfMemory) else FAILED, f"{when}{failure}")
    worker.close()
