"""The arena: one race after another, each on a drawn network; what is over is in the journal."""

from collections.abc import Callable
from pathlib import Path

from pareo.errors import DataError
from pareo.lab.arena.clock import spent_by
from pareo.lab.arena.draw import Drawn
from pareo.lab.arena.result import ArenaResult, Bout
from pareo.lab.arena.settings import Settings
from pareo.lab.arena.text import described
from pareo.lab.contestants import Contestant, Task
from pareo.lab.contestants.registry import chosen
from pareo.lab.experiment import statistics
from pareo.lab.experiment.experiment import Session, conditions
from pareo.lab.experiment.gate import repeated_batch
from pareo.lab.experiment.results import Machine, convert, plain
from pareo.lab.experiment.runner import Repeating
from pareo.lab.experiment.worker import Failed
from pareo.lab.race.engine import Race, Rules
from pareo.lab.race.result import Row
from pareo.lab.sweep.journal import Journal

# FLOPs of a step up to which the gate compares whole batches with float64. Beyond, it compares a
# few images that are repeated, as in a sweep: exact steps would take minutes.
WHOLE = 2 * 10**8


class Match(Race):
    """A race of an arena."""

    closes = False  # it would take longer than the rounds of a drawn network

    def __init__(
        self,
        task: Task,
        contestants: dict[str, Contestant],
        rules: Rules,
        precision: str,
        watch: Callable[[Race], None],
        here: Machine | None = None,
    ) -> None:
        super().__init__(task, contestants, rules, precision, watch)
        self._machine = here

    def begin(self) -> None:
        """Nothing is noted here: the arena has."""

    @property
    def long(self) -> bool:
        """The limits of the machine are not measured again for each network."""
        return False

    def _over(self, number: int, took: float) -> bool:
        """As in a race; but rounds that a verdict needs may take as many seconds more."""
        needed = (statistics.FEWEST - number) * took
        if needed > 0 and self._in_race() and needed <= self.left + self.rules.seconds:
            return False
        return super()._over(number, took)


class LargeMatch(Match):
    """A race on a network that is too large for exact steps of whole batches."""

    runner = Repeating
    exact = staticmethod(repeated_batch.reference)


class Arena(Session):
    """An arena under way: `run` it, and look at `bouts`, `doing` and `match` while it runs.

    When its result is safe, `finish` it; until then the same settings continue it.
    """

    def __init__(self, settings: Settings, folder: Path | None = None) -> None:
        """The journal lies in the folder, or beside pareo's records."""
        super().__init__()
        self.settings = settings
        self.contestants = chosen(list(settings.contestants))
        self.bouts: dict[int, Bout] = {}
        self.match: Match | None = None
        self._journal = Journal(conditions(settings.as_dict()), folder, "arena")
        try:
            for line in self._journal.lines:
                bout = convert(line["bout"], Bout, "the journal")
                self.bouts[bout.index] = bout
        except (DataError, KeyError):
            self._journal.close()
            raise DataError(
                f"{self._journal.path}: expected an arena's journal; delete it to begin again"
            ) from None
        self.resumed = len(self.bouts)

    def run(self, watch: Callable[["Arena"], None] = lambda arena: None) -> ArenaResult:
        """Race on every network that is not done yet, and return the result."""
        self.watch = watch
        self.begin()
        for index in self.settings.indices:
            if index not in self.bouts:
                self.say(f"network {index}: drawing")
                bout = self._bout(self.settings.drawn(index))
                self._journal.add({"bout": plain(bout)})
                self.bouts[index] = bout
                self.match = None
                self.say(f"network {index}: done")
        self.end()
        return self.result()

    def result(self) -> ArenaResult:
        """Everything that is known so far."""
        kinds = ", ".join(self.settings.kinds)
        return ArenaResult(
            **self.header(ArenaResult, "arena"),
            network=f"arena of seed {self.settings.seed}: {kinds}",
            precision=self.settings.precision,
            settings=self.settings,
            bouts=[self.bouts[index] for index in sorted(self.bouts)],
        )

    def finish(self) -> None:
        """Nothing is left to do: the next arena with these settings begins again."""
        self._journal.finish()

    def close(self) -> None:
        """Leave what is done for the next time."""
        self._journal.close()

    def _bout(self, one: Drawn) -> Bout:
        """The race on a network; what prevents it is a row of each contestant."""
        task = self.settings.task(one)
        bout = Bout(
            index=one.index, kind=one.kind, layers=described(one.network), batch=one.batch,
            parameters=one.network.count(), flops=0, images=task.count(), rows=[],
        )  # fmt: skip
        try:
            bout.flops = one.flops
            kind = Match if bout.flops <= WHOLE else LargeMatch
            settings = self.settings
            self.match = kind(
                task, self.contestants, settings.rules, settings.precision, self._said,
                self._machine,
            )  # fmt: skip
            bout.rows = self.match.run().rows
        except Exception as error:  # whatever a random network raises is a finding, not the end
            bout.note = f"{type(error).__name__}: {error}"
            bout.rows = [Row(name) for name in self.contestants]
            for row in bout.rows:
                row.end("failed", bout.note)
            return bout
        for row in bout.rows:
            row.curve = []  # of made-up images
        ours = bout.ours
        if ours is not None:
            self.say(f"{ours.contestant}: where its time goes")
            contestant = self.contestants[ours.contestant].in_precision(settings.precision)
            try:
                bout.spent = spent_by(contestant, task, settings.patience)
            except Failed as failure:
                bout.note = f"its layers could not be timed: {failure}"
        return bout

    def _said(self, match: Race) -> None:
        self.say(match.doing)
