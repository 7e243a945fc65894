"""The laboratory: every contestant does every piece of work, in turn, and is timed if it is right.

Each lives in a process of its own. Before a piece of work is timed, results from all over it are
held against float64's.
"""

import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from pareo import __version__, machine
from pareo.lab.experiment.worker import Failed, Worker
from pareo.lab.machine import memory
from pareo.lab.machine.ceilings import Ceilings, store
from pareo.lab.machine.counters import Rung, ncu
from pareo.lab.machine.counters.ladder import TIMING
from pareo.lab.ops.bench import Bench, Judge, difference
from pareo.lab.ops.cell import Cell
from pareo.lab.ops.peers import why_missing
from pareo.lab.ops.sizes import shown
from pareo.lab.ops.work import Work

SCHEMA = 1
FEWEST, MOST = 3, 30  # rounds
TIMES_THE_CACHE = 4  # bytes in rotation, over the last cache's: then none of them is found in it
UNKNOWN_CACHE = 64 << 20
COPIES = 2.5  # bytes that a contestant may hold for each that it works on
SLOW = 2  # times the seconds that were given: who takes longer gets two samples
PATIENCE = 300.0
JUDGE = "float64"
NCU = "ncu"
COUNTERS = f"counters by {NCU}"  # what it says it does at the end
READY = "everyone is getting ready"  # what it says it does at the beginning of a piece of work


class Laboratory:
    """A session: `run` it, and look at `cells` and `doing` while it runs."""

    def __init__(
        self,
        works: list[Work],
        contestants: list[str],
        ceilings: dict[str, Ceilings],
        threads: int,
        seconds: float = 2.0,
        watch: Callable[["Laboratory"], None] = lambda lab: None,
        rungs: dict[str, Rung] | None = None,
    ) -> None:
        """`ceilings` and `rungs` of counters by place, "cpu" or "cuda".

        `seconds` are for the rounds of one piece of work; without rungs nothing is counted.
        """
        self.works, self.contestants, self.ceilings = works, contestants, ceilings
        self.threads, self.seconds = threads, seconds
        self.rungs = rungs or {}
        self.cells: list[Cell] = []
        self.doing, self.done = "", 0
        self._watch = watch
        self._workers: dict[str, Worker] = {}
        self._idle_cores: float | None = None

    def run(self) -> dict[str, Any]:
        """Measure everything; the result."""
        self._idle_cores = before = machine.idle_cores()
        try:
            for work in self.works:
                self._measure(work)
                self.done += 1
        finally:
            for worker in self._workers.values():
                worker.close()
        self._count_apart()
        told = [cores for cores in (before, machine.idle_cores()) if cores is not None]
        self._idle_cores = min(told, default=None)
        return self.result()

    def result(self) -> dict[str, Any]:
        """Everything that is known so far, as JSON has it: docs/howto-ops.md says what is what."""
        return {
            "schema": SCHEMA,
            "kind": "ops",
            "network": "operators",  # the name that it is kept under
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": {**machine.describe(), "idle_cores": self._idle_cores},
            "versions": {"pareo": __version__, **machine.libraries()},
            "precision": "float32",
            "threads": self.threads,
            "rungs": {place: asdict(rung) for place, rung in self.rungs.items()},
            "ceilings": {place: store.to_plain(c) for place, c in self.ceilings.items()},
            "rows": [{**asdict(cell), "place": cell.place} for cell in self.cells],
        }

    def _measure(self, work: Work) -> None:
        """One piece of work by everyone."""
        cells = [Cell(work.operator, work.direction, work.nbytes, n) for n in self.contestants]
        self.cells += cells
        sets = {}
        for cell in cells:
            if reason := work.missing or why_missing(cell.contestant):
                cell.end("missing", reason)
                continue
            cell.flops, cell.least_flops = work.flops, work.least_flops
            cell.read, cell.written = work.read, work.written
            sets[cell.contestant] = self._sets(cell)
        self._bound(cells, sets)
        entered = [cell for cell in cells if cell.status == "ok"]
        if entered:
            self._say(work, READY)
            self._admit(work, entered, sets)
        self._rounds(work, [cell for cell in entered if cell.status == "ok"], sets)
        for cell in entered:
            if cell.status == "ok":
                self._count(work, cell)
            if cell.contestant in self._workers:
                self._ask(cell, "release")

    def _sets(self, cell: Cell) -> int:
        """How many sets of arrays no cache holds; 1 where it does not hold one."""
        ceilings, moved = self.ceilings[cell.place], max(1, cell.read + cell.written)
        caches = [level.total(ceilings.threads) for level in ceilings.levels]
        return max(1, -(-TIMES_THE_CACHE * max(caches, default=UNKNOWN_CACHE) // moved))

    def _bound(self, cells: list[Cell], sets: dict[str, int]) -> None:
        """Refuse what would not fit into memory: all contestants hold their arrays at once."""
        for place in ("cpu", "cuda"):
            here = [cell for cell in cells if cell.status == "ok" and cell.place == place]
            wanted = sum(COPIES * sets[c.contestant] * (c.read + c.written) for c in here)
            free = self._free(place) if here else None
            if free is not None and wanted > free:
                for cell in here:
                    cell.end(
                        "missing",
                        f"all together would take {wanted / 2**30:.1f} GiB of memory; "
                        f"{free / 2**30:.1f} are free",
                    )

    def _free(self, place: str) -> int | None:
        if place == "cpu":
            return memory.free()
        cards = machine.gpus()
        return cards[0].free if cards else None

    def _admit(self, work: Work, cells: list[Cell], sets: dict[str, int]) -> None:
        """Let all make their arrays and compute once, at the same time; who is wrong is out."""
        judge = self._worker(JUDGE)
        judge.put(work)
        for cell in cells:
            self._worker(cell.contestant).put("prepare", work, sets[cell.contestant])
        try:
            exact = judge.get(PATIENCE)
        except Failed as failure:
            self._workers.pop(JUDGE).close()
            exact, reason = None, f"no reference to agree with: {failure}"
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
            make = (Judge,) if name == JUDGE else (Bench, name)
            self._workers[name] = Worker(*make, self.threads, threads=self.threads)
        return self._workers[name]

    def _rounds(self, work: Work, cells: list[Cell], sets: dict[str, int]) -> None:
        """Everyone in turn, until times are known well or the time is up."""
        started = time.perf_counter()
        for number in range(MOST if cells else 0):
            self._say(work, f"round {number + 1}")
            took = time.perf_counter() - started
            if number >= FEWEST and took > self.seconds:
                return
            if number == FEWEST - 1 and took > SLOW * self.seconds:
                return  # two samples of what takes this long
            for cell in cells:
                for cold in (False, True)[: 1 + (sets[cell.contestant] > 1)]:
                    if cell.status == "ok":
                        sample = self._ask(cell, "run", cold)
                        if sample is not None:
                            (cell.cold if cold else cell.hot).append(sample)
            if all(cell.known for cell in cells if cell.status == "ok"):
                return

    def _count(self, work: Work, cell: Cell) -> None:
        """Counters of one call, by the rung of the ladder that this place has."""
        rung = self.rungs.get(cell.place, Rung(TIMING, "not asked for")).name
        cell.counters = {"rung": rung}
        if rung in (TIMING, NCU):  # the latter at the end, for everything at once
            return
        self._say(work, f"counters of {cell.contestant}, by {rung}")
        cell.counters = self._told(cell, rung)

    def _count_apart(self) -> None:
        """Counters of what was timed, contestant by contestant, each in a process under `ncu`."""
        for name in self.contestants:
            cells = [
                cell
                for cell in self.cells
                if (cell.contestant, cell.status, cell.counters.get("rung")) == (name, "ok", NCU)
            ]
            works = [Work(cell.operator, cell.direction, cell.nbytes) for cell in cells]
            if works:
                self.doing = f"{name}, {COUNTERS}"
                self._watch(self)
                for cell, found in zip(cells, ncu.counted(name, works), strict=True):
                    cell.counters = found

    def _told(self, cell: Cell, rung: str) -> dict[str, Any]:
        """What a contestant's own process counts; its times stay, whatever becomes of that."""
        try:
            found: dict[str, Any] = self._workers[cell.contestant].ask("count", rung)
            return found
        except Failed as failure:
            self._workers.pop(cell.contestant).close()
            return {"rung": rung, "failed": str(failure)}

    def _ask(self, cell: Cell, *question: Any) -> Any:
        """A contestant's answer; None where it failed."""
        self._workers[cell.contestant].put(*question)
        return self._answer(cell)

    def _answer(self, cell: Cell) -> Any:
        """The answer to what was put; a failure ends the cell and its process."""
        try:
            return self._workers[cell.contestant].get(PATIENCE)
        except Failed as failure:
            self._workers.pop(cell.contestant).close()
            cell.end("failed", str(failure))
            return None

    def _say(self, work: Work, doing: str) -> None:
        self.doing = f"{work.operator} {work.direction}, {shown(work.nbytes)}: {doing}"
        self._watch(self)
