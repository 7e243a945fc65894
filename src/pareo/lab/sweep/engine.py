"""The sweep: every contestant at every batch size, each cell in a process of its own.

The cells of one batch size (or of several, where the machine is large) stand at once and take
turns, so what slows the machine for a while slows all of them. Whatever is finished is in the
journal: a sweep that was ended, even by SIGKILL, goes on from there.
"""

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from pareo.device import Device
from pareo.errors import DataError
from pareo.lab import temp_dir
from pareo.lab.contestants.registry import chosen
from pareo.lab.experiment.experiment import Experiment, conditions
from pareo.lab.experiment.gate import exact_files
from pareo.lab.experiment.gate.judge import judging
from pareo.lab.experiment.results import convert, plain
from pareo.lab.experiment.worker import Worker
from pareo.lab.machine.floors import CPU, GPU, place_of
from pareo.lab.sweep import result
from pareo.lab.sweep.admission import Cells
from pareo.lab.sweep.group import Group
from pareo.lab.sweep.journal import Journal
from pareo.lab.sweep.limit import Limits
from pareo.lab.sweep.result import INTERRUPTED, Ceiling, Cell, Limit, Probe, Work
from pareo.lab.sweep.settings import Settings
from pareo.program.compiler import prepared
from pareo.training.own import is_own, shown
from pareo.training.step import step_program


class Sweep(Experiment):
    """A sweep under way: `run` it, and look at `cells`, `doing` and `round` while it runs.

    When its result is safe, `finish` it; until then it can be continued.
    """

    def __init__(self, settings: Settings, folder: Path | None = None) -> None:
        """The journal lies in the folder, or beside pareo's records."""
        found = chosen(list(settings.contestants))
        super().__init__(found, settings.precision, settings.threads)
        self.settings = settings
        task = settings.task(settings.batches[0])
        data = task.data()  # what is wrong with it is said before anything begins
        self._images = _digest(*data) if settings.data else None
        usual = "mnist" if task.network.inputs == (1, 28, 28) else "made-up images"
        self._data = settings.data or usual
        self.cells = {
            (name, batch): Cell(name, batch, place=place_of(self.contestants[name]))
            for batch in settings.batches
            for name in self.contestants
        }
        self.resumed = 0
        self.finished: list[tuple[str, int]] = []
        self.limits: list[Limit] = []
        self._group: Group | None = None
        self._work: dict[int, Work] = {}
        self._warmed = False
        self._journal = Journal(self._about(), folder)
        self._probes: list[Probe] = []
        try:
            for line in self._journal.lines:
                self._remember(line)
        except (AttributeError, KeyError, TypeError, ValueError):
            self._journal.close()
            raise DataError(
                f"{self._journal.path}: expected a sweep's journal; delete it to begin again"
            ) from None

    def take_over(self, earlier: result.SweepResult) -> None:
        """Go on from the result of an interrupted sweep: what it had finished is not done again.

        It is that of a sweep with these settings on this machine. What the journal has already
        stays as it is there. Cells that were timed in turns are taken over together or not at all.
        """
        for cells in earlier.complete:
            new = [cell for cell in cells if cell.key not in self.finished]
            self._note({"cells": [plain(cell) for cell in new]})
        found = {limit.contestant for limit in self.limits}
        for limit in earlier.limits:
            if not limit.note and limit.contestant not in found:
                self._note({"limit": plain(limit)})
        for one in earlier.ceilings:
            if one.peak_flops and one.bandwidth:
                self._note({"ceiling": [one.place, one.peak_flops, one.bandwidth]})

    def run(self, watch: Callable[["Sweep"], None] = lambda sweep: None) -> result.SweepResult:
        """Do everything that is not done yet, and return the result."""
        self.watch = watch
        self.begin()
        with ExitStack() as stack:
            folder = stack.enter_context(temp_dir.folder())
            if CPU in self.places():
                self._measure()
            task = self.settings.task(1)
            judge = Worker(
                judging, exact_files.reference, task, folder, self.precision, threads=task.threads
            )
            stack.enter_context(judge)
            admission = Cells(self.settings, self.contestants, judge, self.say)
            stack.enter_context(admission)
            self._group = Group(admission)
            sizes, abreast = self.settings.batches, self.settings.abreast
            groups = [sizes[first : first + abreast] for first in range(0, len(sizes), abreast)]
            if not self._warmed:
                admission.warm(self._waiting(sizes))
                self._journal.add({"warmed": True})
            admission.expect(self._waiting(groups[0]))
            if self.places() == {GPU}:  # which is idle while contestants are imported
                self._measure()
            for here, following in zip(groups, [*groups[1:], ()], strict=True):
                waiting = self._waiting(here)
                admission.drop([self.cells[name, b] for b in here for name in self.contestants
                                if self.cells[name, b] not in waiting])  # fmt: skip
                admission.expect(waiting + self._waiting(following))
                self._time(self._group, waiting)
            self._search()
            if self.places() == {CPU} and self.long:  # it may have been slowed; a GPU is not
                self._measure()
        return self.result()

    def finish(self) -> None:
        """Nothing is left to do: the next sweep of this kind begins again."""
        self._journal.finish()

    def close(self) -> None:
        """Leave what is done for the next time."""
        self._journal.close()

    def result(self) -> result.SweepResult:
        """Everything that is known so far."""
        return result.SweepResult(
            **self.header(result.SweepResult, "sweep"),
            network=shown(self.settings.network),
            data=self._data,
            precision=self.precision,
            settings=self.settings,
            work=[self.work(batch) for batch in self.settings.batches],
            ceilings=[self.ceiling(place) for place in sorted(self.places())],
            cells=[*self.cells.values()],
            limits=self.limits,
        )

    @property
    def round(self) -> int:
        """The round that is running, of the cells that stand now."""
        return self._group.round if self._group else 0

    def ceiling(self, place: str) -> Ceiling:
        """The best that was measured in a place."""
        peak, bandwidth = self.peaks.best(place)
        return Ceiling(place=place, peak_flops=peak, bandwidth=bandwidth)

    def work(self, batch: int) -> Work:
        """What a step is: its FLOPs, the least bytes, and what its instructions move.

        They are those that pareo fuses for a CPU, each of which reads and writes memory once.
        """
        if batch not in self._work:
            task = self.settings.task(batch)
            with Device("compiled", threads=self.settings.threads) as place:
                program = prepared(step_program(task.network, batch), place.backend)
            self._work[batch] = Work(
                batch=batch,
                flops=program.flops,
                least_bytes=task.least_bytes(),
                moved_bytes=program.bytes,
            )
        return self._work[batch]

    def _about(self) -> dict[str, Any]:
        """What must be the same for a sweep to be continued."""
        return {
            **conditions(self.settings.as_dict()),
            "images": self._images,
            **self._definition(),
        }

    def _definition(self) -> dict[str, str]:
        """A network of the user's own, whose file may have changed, by a hash."""
        if not is_own(self.settings.network):
            return {}
        network = repr(self.settings.task(1).network)
        return {"network": hashlib.sha256(network.encode()).hexdigest()}

    def _note(self, line: dict[str, Any]) -> None:
        """Write a line that another sweep has found to the journal, and take it from there."""
        self._journal.add(line)
        self._remember(line)

    def _remember(self, line: dict[str, Any]) -> None:
        """A line of the journal."""
        for kept in line.get("cells", ()):
            cell = convert(kept, Cell, "the journal")
            if cell.key in self.cells:
                self.cells[cell.key] = cell
                self.finished.append(cell.key)
                self.resumed += 1
        if "probe" in line:
            self._probes.append(convert(line["probe"], Probe, "the journal"))
        elif "limit" in line:
            self.limits.append(convert(line["limit"], Limit, "the journal"))
        elif "warmed" in line:
            self._warmed = True
        elif "ceiling" in line:
            place, peak, bandwidth = line["ceiling"]
            self.peaks.add(place, (peak, bandwidth))

    def _measure(self) -> None:
        """Measure how fast each place is, and write it down."""
        for place, found in self.measure(self.places()).items():
            self._journal.add({"ceiling": [place, *found]})

    def _waiting(self, batches: tuple[int, ...]) -> list[Cell]:
        """The cells of some batch sizes that are not done yet, and that can be tried."""
        here = [self.cells[name, b] for b in batches for name in self.contestants]
        for cell in here:
            if cell.status == "waiting" and self._excluded(cell):
                self._done([cell])
        return [cell for cell in here if cell.status == "waiting"]

    def _time(self, group: Group, waiting: list[Cell]) -> None:
        """Build, time and write down cells; then alone those that had too little memory."""
        cells = [cell for cell in waiting if cell.status == "waiting"]
        self._timed(group, cells)
        crowded = [cell for cell in cells if len(cells) > 1 and group.crowded(cell)]
        for cell in crowded:
            cell.status, cell.note = "waiting", ""
        self._done([cell for cell in waiting if cell not in crowded])
        for cell in crowded:
            self._timed(group, [cell])
            self._done([cell])

    def _timed(self, group: Group, cells: list[Cell]) -> None:
        """Time cells; those interrupted after all rounds are written down, others say so."""
        try:
            group.run(cells)
        except KeyboardInterrupt:
            if group.over:
                self._done([cell for cell in cells if not group.crowded(cell)])
            for cell in cells:
                if cell.seconds_per_batch and cell.key not in self.finished:
                    cell.note = f"{INTERRUPTED} {len(cell.rounds)} rounds"
            raise

    def _excluded(self, cell: Cell) -> bool:
        """Whether a cell need not be tried; then its note says why."""
        smaller = [one for one in self.cells.values() if one.contestant == cell.contestant]
        short = [one.batch for one in smaller if one.status == "memory" and one.batch < cell.batch]
        if cell.contestant in self.missing:
            cell.end("missing", self.missing[cell.contestant])
        elif short:
            cell.end("memory", f"batch {min(short)} did not fit")
        return cell.contestant in self.missing or bool(short)

    def _done(self, cells: list[Cell]) -> None:
        """Cells that were timed in turns are written down at once, because they are compared."""
        if not cells:
            return
        self.finished += [cell.key for cell in cells]
        self._journal.add({"cells": [plain(cell) for cell in cells]})
        names = ", ".join(cell.contestant for cell in cells)
        self.say(f"{names}, batch {cells[-1].batch}: done")

    def _search(self) -> None:
        """The largest batch that fits, where there is a limit to fit under."""
        search = Limits(self.settings, self._probes, self._journal, self.say)
        for name, contestant in self.contestants.items():
            known = [cell for cell in self.cells.values() if cell.contestant == name]
            tried = any(cell.status in ("ok", "memory") for cell in known)
            found = any(limit.contestant == name for limit in self.limits)
            if tried and search.wanted() and not found:
                limit = search.largest(name, contestant, known)
                self.limits.append(limit)
                if not limit.note:
                    self._journal.add({"limit": plain(limit)})


def _digest(images: Any, labels: Any) -> str:
    """What tells data from other data of the same name."""
    found = hashlib.sha256(repr((images.shape, len(labels))).encode())
    for array in (images, labels):
        found.update(np.ascontiguousarray(array).data.cast("B"))
    return found.hexdigest()[:16]
