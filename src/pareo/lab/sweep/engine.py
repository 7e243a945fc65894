"""The sweep: every contestant at every batch size, each cell in a process of its own.

The cells of one batch size (or of several, where the machine is large) stand at once and take
turns, so what slows the machine for a while slows all of them. Whatever is finished is in the
journal: a sweep that was ended, even by SIGKILL, goes on from there.
"""

import hashlib
import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from pareo import __version__, machine
from pareo.device import Device
from pareo.errors import DataError
from pareo.lab import temp_dir
from pareo.lab.contestants.registry import chosen
from pareo.lab.experiment.gate import exact_files
from pareo.lab.experiment.worker import Worker
from pareo.lab.machine.floors import CARD, CPU, measured, place_of
from pareo.lab.sweep.admission import Admission
from pareo.lab.sweep.cells import MEMORY, MISSING, OK, WAITING, Cell, from_dict
from pareo.lab.sweep.group import Group
from pareo.lab.sweep.journal import Journal
from pareo.lab.sweep.limit import Limits
from pareo.lab.sweep.results import SCHEMA
from pareo.lab.sweep.settings import Settings
from pareo.lab.train_speed import plain
from pareo.program.compiler import prepared
from pareo.training.step import step_program


class Sweep:
    """A sweep under way: `run` it, and look at `cells`, `doing` and `round` while it runs.

    When its result is safe, `finish` it; until then it can be gone on with.
    """

    def __init__(self, settings: Settings, folder: Path | None = None) -> None:
        """The journal lies in the folder, or beside pareo's records."""
        self.settings = settings
        self._watch: Callable[[Sweep], None] = lambda sweep: None
        self._contestants = {
            name: one.in_precision(settings.precision)
            for name, one in chosen(list(settings.contestants)).items()
        }
        task = settings.task(settings.batches[0])
        found = task.data()  # what is wrong with it is said before anything begins
        self._images = _digest(*found) if settings.data else None
        usual = "mnist" if task.network.inputs == (1, 28, 28) else "made-up images"
        self._data = settings.data or usual
        self.cells = {
            (name, batch): Cell(name, batch)
            for batch in settings.batches
            for name in self._contestants
        }
        self.doing, self.resumed = "", 0
        self.finished: list[tuple[str, int]] = []
        self._stand: Group | None = None
        self.ceilings: dict[str, list[tuple[float, float]]] = {}
        self.limits: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._missing = {name: one.missing() for name, one in self._contestants.items()}
        self._work: dict[int, dict[str, Any]] = {}
        self._warmed = False
        self._journal = Journal(self._about(), folder)
        self._probes: list[dict[str, Any]] = []
        try:
            for line in self._journal.lines:
                self._remember(line)
        except (AttributeError, KeyError, TypeError, ValueError):
            self._journal.close()
            raise DataError(
                f"{self._journal.path}: expected a sweep's journal; delete it to begin anew"
            ) from None

    def run(self, watch: Callable[["Sweep"], None] = lambda sweep: None) -> dict[str, Any]:
        """Everything that is not done yet; the result. `watch` is called when something changes."""
        self._watch = watch
        idle = machine.idle_cores()
        with ExitStack() as stack:
            folder = stack.enter_context(temp_dir.folder())
            if CPU in self.places():
                self._measure()
            task = self.settings.task(1)
            judge = Worker(
                exact_files.reference, task, folder, self.settings.precision, threads=task.threads
            )
            stack.enter_context(judge)
            admission = stack.enter_context(
                Admission(self.settings, self._contestants, judge, self._say)
            )
            stand = self._stand = Group(admission)
            sizes, abreast = self.settings.batches, self.settings.abreast
            groups = [sizes[first : first + abreast] for first in range(0, len(sizes), abreast)]
            if not self._warmed:
                admission.warm(self._waiting(sizes))
                self._journal.add({"warmed": True})
            admission.expect(self._waiting(groups[0]))
            if self.places() == {CARD}:  # which has time for it while contestants are imported
                self._measure()
            for here, following in zip(groups, [*groups[1:], ()], strict=True):
                waiting = self._waiting(here)
                admission.drop([self.cells[name, b] for b in here for name in self._contestants
                                if self.cells[name, b] not in waiting])  # fmt: skip
                admission.expect(waiting + self._waiting(following))
                self._group(stand, waiting)
            self._search()
            if self.places() == {CPU}:  # which may have been slowed at first; a card is not
                self._measure()
        return self.result(idle)

    def finish(self) -> None:
        """Nothing is left to do: the next sweep of this kind begins anew."""
        self._journal.finish()

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

    @property
    def round(self) -> int:
        """The round that is running, of the cells that stand now."""
        return self._stand.round if self._stand else 0

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
        """What a step is: its FLOPs, the least bytes, and what its instructions move.

        They are those that pareo fuses for a CPU, each of which reads and writes memory once.
        """
        if batch in self._work:
            return self._work[batch]
        task = self.settings.task(batch)
        with Device("compiled", threads=self.settings.threads) as place:
            program = prepared(step_program(task.network, batch), place.backend)
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
            "cards": [[card.name, card.driver] for card in machine.gpus()],
            "images": self._images,
        }

    def _remember(self, line: dict[str, Any]) -> None:
        for kept in line.get("cells", ()):
            cell = from_dict(kept)
            if cell.key in self.cells:
                self.cells[cell.key] = cell
                self.finished.append(cell.key)
                self.resumed += 1
        if "probe" in line:
            self._probes.append(line["probe"])
        elif "warmed" in line:
            self._warmed = True
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
        threads, precision = self.settings.threads, self.settings.precision
        for place, now in measured(self.places(), threads, precision, self.ceilings):
            self.ceilings.setdefault(place, []).append(now)
            self._journal.add({"ceiling": [place, *now]})

    def _waiting(self, batches: tuple[int, ...]) -> list[Cell]:
        """The cells of some batch sizes that are not done yet, and that can be tried."""
        here = [self.cells[name, b] for b in batches for name in self._contestants]
        for cell in here:
            if cell.status == WAITING:
                self._exclude(cell)
                if cell.status != WAITING:
                    self._done([cell])
        return [cell for cell in here if cell.status == WAITING]

    def _group(self, stand: Group, waiting: list[Cell]) -> None:
        """Cells built, timed in turn and written down; alone who had no room beside others."""
        cells = [cell for cell in waiting if cell.status == WAITING]
        self._timed(stand, cells)
        crowded = [cell for cell in cells if len(cells) > 1 and stand.crowded(cell)]
        for cell in crowded:
            cell.status, cell.note = WAITING, ""
        self._done([cell for cell in waiting if cell not in crowded])
        for cell in crowded:
            self._timed(stand, [cell])
            self._done([cell])

    def _timed(self, stand: Group, cells: list[Cell]) -> None:
        """What is interrupted once all rounds are over is written down; what is sooner says so."""
        try:
            stand.run(cells)
        except KeyboardInterrupt:
            if stand.over:
                self._done([cell for cell in cells if not stand.crowded(cell)])
            for cell in cells:
                if cell.seconds_per_batch and cell.key not in self.finished:
                    cell.note = f"interrupted after {len(cell.rounds)} rounds"
            raise

    def _exclude(self, cell: Cell) -> None:
        """A cell that need not be tried gets its reason."""
        contestant = self._contestants[cell.contestant]
        smaller = [one for one in self.cells.values() if one.contestant == cell.contestant]
        short = [one.batch for one in smaller if one.status == MEMORY and one.batch < cell.batch]
        if reason := self._missing[cell.contestant]:
            cell.end(MISSING, reason)
        elif self.settings.precision != "float32" and not contestant.gpu:
            cell.end(MISSING, f"it computes in float32 only, not in {self.settings.precision}")
        elif short:
            cell.end(MEMORY, f"batch {min(short)} did not fit")

    def _done(self, cells: list[Cell]) -> None:
        """Cells that were timed in turn are written down at once: they are compared."""
        if not cells:
            return
        self.finished += [cell.key for cell in cells]
        self._journal.add({"cells": [plain(cell.as_dict()) for cell in cells]})
        names = ", ".join(cell.contestant for cell in cells)
        self._say(f"{names}, batch {cells[-1].batch}: done")

    def _search(self) -> None:
        """The largest batch that fits, where there is a limit to fit under."""
        search = Limits(self.settings, self._probes, self._journal, self._say)
        for name, contestant in self._contestants.items():
            known = [cell for cell in self.cells.values() if cell.contestant == name]
            tried = any(cell.status in (OK, MEMORY) for cell in known)
            if not tried or not search.wanted():
                continue
            self.limits.append(search.largest(name, contestant, known))


def _digest(images: Any, labels: Any) -> str:
    """What tells data from other data of the same name."""
    told = hashlib.sha256(repr((images.shape, len(labels))).encode())
    for array in (images, labels):
        told.update(np.ascontiguousarray(array).data.cast("B"))
    return told.hexdigest()[:16]
