"""Times operators: every contestant does every piece of work in turn, if its results are right.

Each contestant has a process of its own. Before a piece of work is timed, elements from all over
its results are compared with float64.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pareo.lab.experiment.experiment import Session
from pareo.lab.experiment.rounds import rounds
from pareo.lab.experiment.worker import Failed, Worker
from pareo.lab.machine.ceilings import Ceilings
from pareo.lab.machine.places import PLACES, Place, free_memory
from pareo.lab.ops.counters import Rung, ncu
from pareo.lab.ops.counters.ladder import NCU, TIMING
from pareo.lab.ops.peers import place_of, why_missing
from pareo.lab.ops.result import Cell, OpsResult
from pareo.lab.ops.runner import Reference, Runner, difference
from pareo.lab.ops.sizes import shown
from pareo.lab.ops.work import Work

FEWEST, MOST = 3, 30  # rounds
TIMES_THE_CACHE = 4  # bytes of all sets of arrays, over those of the last cache: none stays in it
UNKNOWN_CACHE = 64 << 20
COPIES = 2.5  # bytes that a contestant may hold for each byte that it works on
SLOW = 2  # times the seconds that were given: what takes longer has two samples
PATIENCE = 300.0
REFERENCE = "float64"
COUNTERS = f"counters by {NCU}"  # what `doing` ends with at the end
READY = "contestants are getting ready"  # what `doing` ends with when a piece of work begins


class Benchmark(Session):
    """Times operators: `run` it, and look at `cells` and `doing` while it runs."""

    def __init__(
        self,
        works: list[Work],
        contestants: list[str],
        ceilings: dict[Place, Ceilings],
        threads: int,
        seconds: float = 2.0,
        watch: Callable[["Benchmark"], None] = lambda benchmark: None,
        rungs: dict[Place, Rung] | None = None,
    ) -> None:
        """`seconds` are for the rounds of one piece of work; without rungs nothing is counted."""
        super().__init__(watch)
        self.works, self.contestants, self.ceilings = works, contestants, ceilings
        self.threads, self.seconds = threads, seconds
        self.rungs = rungs or {}
        self.cells: list[Cell] = []
        self.done = 0  # pieces of work
        self._workers: dict[str, Worker] = {}

    def run(self) -> OpsResult:
        """Measure everything; the result."""
        self.begin()
        try:
            for work in self.works:
                self._measure(work)
                self.done += 1
        finally:
            for worker in self._workers.values():
                worker.close()
        self._count_by_ncu()
        self.end()
        return self.result()

    def result(self) -> OpsResult:
        """Everything that is known so far."""
        return OpsResult(
            **self.header(OpsResult, "ops"),
            threads=self.threads,
            rungs=self.rungs,
            ceilings=self.ceilings,
            rows=self.cells,
        )

    def _measure(self, work: Work) -> None:
        """One piece of work by all contestants."""
        cells = [
            Cell(name, work.operator, work.direction, work.nbytes, place=place_of(name))
            for name in self.contestants
        ]
        self.cells += cells
        for cell in cells:
            if reason := work.missing or why_missing(cell.contestant):
                cell.end("missing", reason)
            else:
                cell.flops, cell.least_flops = work.flops, work.least_flops
                cell.read, cell.written = work.read, work.written
        self._check_memory(cells)
        entered = _standing(cells)
        if not entered:
            return
        self._say_of(work, READY)
        self._admit(work, entered)
        self._time(work, entered)
        for cell in entered:
            if cell.status == "ok":
                self._count(work, cell)
            if cell.contestant in self._workers:
                self._ask(cell, "release")

    def _sets(self, cell: Cell) -> int:
        """How many sets of arrays no cache holds; 1 if no cache holds a single one."""
        ceilings = self.ceilings[cell.place]
        caches = [level.total(ceilings.threads) for level in ceilings.levels]
        wanted = TIMES_THE_CACHE * max(caches, default=UNKNOWN_CACHE)
        return max(1, -(-wanted // max(1, cell.moved)))

    def _check_memory(self, cells: list[Cell]) -> None:
        """End cells that do not fit into memory: all contestants hold their arrays together."""
        for place in PLACES:
            here = [cell for cell in _standing(cells) if cell.place == place]
            wanted = sum(COPIES * self._sets(cell) * cell.moved for cell in here)
            free = free_memory(place) if here else None
            if free is not None and wanted > free:
                for cell in here:
                    cell.end(
                        "missing",
                        f"all contestants together need {wanted / 2**30:.1f} GiB of memory; "
                        f"{free / 2**30:.1f} are free",
                    )

    def _admit(self, work: Work, cells: list[Cell]) -> None:
        """Let all make their arrays and compute once, at the same time; refuse wrong results."""
        reference = self._worker(REFERENCE)
        reference.put(work)
        for cell in cells:
            self._worker(cell.contestant).put("prepare", work, self._sets(cell))
        exact, reason = None, ""
        try:
            exact = reference.get(PATIENCE)
        except Failed as failure:
            self._workers.pop(REFERENCE).close()
            reason = f"no reference to agree with: {failure}"
        for cell in cells:
            found = self._answer(cell)
            if isinstance(found, str):
                cell.end("missing", found)
            elif exact is None:
                cell.end("failed", reason)
            elif found is not None:
                cell.error, wrong = difference(found, exact)
                if wrong:
                    cell.end("refused", wrong)

    def _worker(self, name: str) -> Worker:
        if name not in self._workers:
            make = (Reference,) if name == REFERENCE else (Runner, name)
            self._workers[name] = Worker(*make, self.threads, threads=self.threads)
        return self._workers[name]

    def _time(self, work: Work, cells: list[Cell]) -> None:
        """Rounds, until times are known well or the time is up."""
        began = time.perf_counter()

        def over(number: int, _: float) -> bool:
            took = time.perf_counter() - began
            enough = number >= FEWEST and took > self.seconds
            slow = number == FEWEST - 1 and took > SLOW * self.seconds
            known = all(cell.known for cell in _standing(cells))
            return number >= MOST or enough or slow or known

        def say(number: int) -> None:
            self._say_of(work, f"round {number}")

        if _standing(cells):
            rounds(partial(_standing, cells), self._turn, over, say)

    def _turn(self, cell: Cell, number: int) -> None:
        """A hot sample, and a cold one if a cache could hold the operands."""
        for cold in (False, True) if self._sets(cell) > 1 else (False,):
            if cell.status == "ok":
                sample = self._ask(cell, "run", cold)
                if sample is not None:
                    cell.samples(cold).append(sample)

    def _count(self, work: Work, cell: Cell) -> None:
        """Counters of one call, by the rung of the ladder that this place has."""
        rung = self.rungs.get(cell.place, Rung(TIMING, "not asked for")).name
        cell.counters = {"rung": rung}
        if rung in (TIMING, NCU):  # ncu counts at the end, for all work at once
            return
        self._say_of(work, f"counters of {cell.contestant}, by {rung}")
        try:
            cell.counters = self._workers[cell.contestant].ask("count", rung)
        except Failed as failure:  # the times stay
            self._workers.pop(cell.contestant).close()
            cell.counters = {"rung": rung, "failed": str(failure)}

    def _count_by_ncu(self) -> None:
        """Counters of what was timed: for each contestant, one process under `ncu`."""
        for name in self.contestants:
            cells = [
                cell
                for cell in _standing(self.cells)
                if cell.contestant == name and cell.counters.get("rung") == NCU
            ]
            if cells:
                self.say(f"{name}, {COUNTERS}")
                counted = ncu.counted(name, [cell.work for cell in cells])
                for cell, found in zip(cells, counted, strict=True):
                    cell.counters = found

    def _ask(self, cell: Cell, *question: Any) -> Any:
        """The answer of a contestant; None if it failed."""
        self._workers[cell.contestant].put(*question)
        return self._answer(cell)

    def _answer(self, cell: Cell) -> Any:
        """The answer to what was put; a failure ends the cell and the process."""
        try:
            return self._workers[cell.contestant].get(PATIENCE)
        except Failed as failure:
            self._workers.pop(cell.contestant).close()
            cell.end("failed", str(failure))
            return None

    def _say_of(self, work: Work, doing: str) -> None:
        self.say(f"{work.operator} {work.direction}, {shown(work.nbytes)}: {doing}")


def _standing(cells: list[Cell]) -> list[Cell]:
    """The cells that still take part."""
    return [cell for cell in cells if cell.status == "ok"]
