"""A framework at its best: its settings tried for a moment, and the fastest of them raced."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pareo.lab.contestants import Contestant
from pareo.lab.contestants.registry import known
from pareo.lab.experiment.admission import Racer, Row

TURNS = 2  # of each setting
Admit = Callable[[Row, Contestant], Racer | None]


@dataclass
class Trial:
    """Tries the settings of one contestant: those that race anyway in the process they have.

    row: the contestant's own. admit: lets a setting in, or says in its row why not.
    racing: who is in the race already. out: the rows of those that have left it.
    untried: settings that take too long to build for it.
    """

    row: Row
    admit: Admit
    racing: dict[str, Racer]
    out: dict[str, Row]
    untried: tuple[str, ...] = ()
    say: Callable[[str], None] = lambda doing: None

    def fastest(self, contestant: Contestant) -> Racer | None:
        """Whoever races for it, which may be one that is in the race already.

        None where no setting can. The row's ledger names all that were tried.
        """
        everyone = known()
        tried = {name: Row(name) for name in contestant.tries}
        racers = []
        for name, attempt in tried.items():
            if name in self.racing:
                attempt.turn = self.racing[name].row.turn
                racers.append(self.racing[name].afresh(attempt))
            elif name in self.out:
                attempt.end(self.out[name].status, self.out[name].note)
            elif reason := everyone[name].missing():
                attempt.end("missing", reason)
            elif name in self.untried:
                attempt.end("missing", "not tried: it takes long to build")
            elif racer := self.admit(attempt, everyone[name]):
                racers.append(racer)
        for turn in range(TURNS):
            for racer in racers:
                if racer.row.status == "ok":
                    self.say(f"{self.row.contestant}: trying {racer.row.contestant}")
                    racer.run(turn)
        self.row.ledger["settings_tried"] = [_said(attempt) for attempt in tried.values()]
        fair = [racer for racer in racers if racer.row.samples]
        if not fair:
            self.row.end("failed", "none of its settings could be raced; the ledger says why")
            return None
        return self._entered(min(fair, key=lambda racer: min(racer.row.samples)), racers)

    def _entered(self, best: Racer, racers: list[Racer]) -> Racer:
        """The best under this row's name; the others' processes end, but for those that race."""
        name = best.row.contestant
        for racer in racers:
            if racer.row.contestant in self.racing:
                racer.ask("restart")
            elif racer is not best:
                racer.worker.close()
        self.row.note = f"its fastest setting: {name}"
        if name in self.racing:
            self.row.note += ", timed once for both"
            return self.racing[name]
        best.ask("restart")
        found = best.row
        self.row.parity, self.row.slice = found.parity, found.slice
        self.row.first_call, self.row.turn = found.first_call, found.turn
        return best.afresh(self.row)


def _said(row: Row) -> dict[str, Any]:
    """What a setting's row says in the ledger."""
    best = min(row.samples, default=None)
    return {"setting": row.contestant, "seconds_per_epoch": best, "note": row.note}
