"""A framework at its best: its settings are tried for a moment, and the fastest of them races."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pareo.lab.contestants import Contestant
from pareo.lab.contestants.registry import known
from pareo.lab.experiment.running import Running
from pareo.lab.race.result import Row

TURNS = 2  # of each setting
Admit = Callable[[Row, Contestant], Running[Row] | None]


@dataclass
class Trial:
    """Tries the settings of one contestant; those that race anyway use the process they have.

    row: the contestant's own. admit: admits a setting, or says in its row why not.
    racing: contestants that are in the race already. out: the rows of those that have left it.
    untried: settings that take too long to build for this race.
    """

    row: Row
    admit: Admit
    racing: dict[str, Running[Row]]
    out: dict[str, Row]
    untried: tuple[str, ...] = ()
    say: Callable[[str], None] = lambda doing: None

    def fastest(self, contestant: Contestant) -> Running[Row] | None:
        """The fastest setting, which may be one that is in the race already.

        None where no setting can race. The row's ledger names all that were tried.
        """
        everyone = known()
        tried = {name: Row(name) for name in contestant.tries}
        standing = []
        for name, attempt in tried.items():
            if name in self.racing:
                attempt.turn, attempt.slice = self.racing[name].entry.turn, 1.0
                standing.append(self.racing[name].for_entry(attempt))
            elif name in self.out:
                attempt.end(self.out[name].status, self.out[name].note)
            elif reason := everyone[name].missing():
                attempt.end("missing", reason)
            elif name in self.untried:
                attempt.end("missing", "not tried: it takes long to build")
            elif running := self.admit(attempt, everyone[name]):
                standing.append(running)
        for turn in range(TURNS):
            for running in standing:
                if running.ok:
                    self.say(f"{self.row.contestant}: trying {running.entry.contestant}")
                    running.run(turn)
        self.row.ledger["settings_tried"] = [_summary(attempt) for attempt in tried.values()]
        fair = [running for running in standing if running.entry.samples]
        if not fair:
            self.row.end("failed", "none of its settings could be raced; the ledger says why")
            return None
        return self._entered(min(fair, key=lambda one: min(one.entry.samples)), standing)

    def _entered(self, best: Running[Row], standing: list[Running[Row]]) -> Running[Row]:
        """The best under this row's name; the processes of the others end unless they race."""
        name = best.entry.contestant
        for running in standing:
            if running.entry.contestant in self.racing:
                running.ask("restart")
            elif running is not best:
                running.worker.close()
        self.row.note = f"its fastest setting: {name}"
        if name in self.racing:
            self.row.note += ", timed once for both"
            return self.racing[name]
        best.ask("restart")
        found = best.entry
        self.row.parity, self.row.slice = found.parity, found.slice
        self.row.first_call, self.row.turn = found.first_call, found.turn
        return best.for_entry(self.row)


def _summary(row: Row) -> dict[str, Any]:
    """What the ledger says of a setting."""
    best = min(row.samples, default=None)
    return {"setting": row.contestant, "seconds_per_epoch": best, "note": row.note}
