"""The search: ask Optuna, train, tell Optuna, until as many trials are done as were asked for."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pareo.errors import PareoError
from pareo.interrupt import Interrupt
from pareo.parallel.trials.trial import Result, Trial
from pareo.parallel.tuning.local import Job, Report
from pareo.parallel.tuning.space import Space
from pareo.parallel.tuning.study import best_of, counts, origin, rank, token
from pareo.training import checkpoint as files
from pareo.training.history import Epoch

if TYPE_CHECKING:
    import optuna

POLL_SECONDS = 0.2  # how soon Ctrl-C is noticed


class Workers(Protocol):
    """Those who train: threads here, or tasks of a Ray cluster.

    places:   how many trials at once
    together: whether they all begin at once
    """

    places: int
    together: bool

    def start(self, jobs: Sequence[Job], report: Report) -> None:
        """Begin to train; `report` is called after every epoch, where it is True the trial ends."""

    def finished(self, seconds: float) -> list[tuple[int, Result]]:
        """Who is done, by number; nobody where that takes longer than so many seconds."""


@dataclass
class Search:
    """A search under way.

    study:   Optuna's; whatever is to survive this process is in there
    space:   what is searched
    made:    the trial for some hyper-parameters
    workers: who trains
    wanted:  how many trials there shall be in all
    folder:  for checkpoints, and for the best network so far
    watch:   called whenever something has changed
    """

    study: "optuna.Study"
    space: Space
    made: Callable[[dict[str, Any]], Trial]
    workers: Workers
    wanted: int
    folder: Path
    watch: "Callable[[Search], None]" = lambda search: None
    running: "dict[int, optuna.Trial]" = field(default_factory=dict)
    epochs: dict[int, Epoch] = field(default_factory=dict)
    interrupted: bool = False

    def __post_init__(self) -> None:
        self.done = sum(map(counts, self.study.trials))
        self.best = best_of(self.study)
        self._token = token(self.study)
        self._tidy()

    def run(self) -> None:
        """Train until the study has as many trials as are wanted, or until Ctrl-C."""
        with Interrupt() as interrupt:
            while self.running or (self.done < self.wanted and not self.interrupted):
                self.interrupted |= interrupt.asked
                self._start()
                for number, result in self.workers.finished(POLL_SECONDS):
                    self._tell(self.running.pop(number), result)
                    self.watch(self)

    def file(self, trial: Any) -> Path:
        """Where the network of a trial is kept while it is the best."""
        return self.folder / f"{self._stem(trial)}.safetensors"

    def _start(self) -> None:
        """Begin as many trials as there are places for."""
        jobs: list[Job] = []
        while self._free(jobs):
            asked = self.study.ask(self.space.distributions())
            try:
                trial = self.made({**self.space.fixed, **asked.params})
            except PareoError as error:
                asked.set_user_attr("error", str(error))
                self._end(asked, "FAIL")
                continue
            self.running[asked.number] = asked
            jobs.append(Job(asked.number, trial, self._partial(asked)))
        if jobs:
            self.workers.start(jobs, self._report)

    def _free(self, begun: Sequence[Job]) -> bool:
        busy = len(self.running)
        if self.interrupted or self.done + busy >= self.wanted:
            return False
        late = self.workers.together and busy > len(begun)  # the present ones have begun already
        return busy < self.workers.places and not late

    def _report(self, number: int, epoch: Epoch) -> bool:
        """Called by workers, in their threads."""
        asked = self.running[number]
        self.epochs[number] = epoch
        asked.report(epoch.accuracy or 0.0, epoch.number)
        self.watch(self)
        return self.interrupted or bool(asked.should_prune())

    def _tell(self, asked: "optuna.Trial", result: Result) -> None:
        """What became of a trial; one that Ctrl-C ended stays open, and is queued at the start."""
        self.epochs.pop(asked.number, None)
        if result.stopped and self.interrupted:
            return
        # One that went on from a checkpoint has not told this study of its first epochs.
        known = self.study.trials[asked.number].intermediate_values
        for epoch in result.history:
            if epoch.number not in known:
                asked.report(epoch.accuracy or 0.0, epoch.number)
        asked.set_user_attr("seconds", result.seconds)
        asked.set_user_attr("how", result.how)
        if result.error is not None:
            asked.set_user_attr("error", result.error)
            self._end(asked, "FAIL")
        elif result.stopped:
            self._end(asked, "PRUNED")
        else:
            self._complete(asked, result)

    def _complete(self, asked: "optuna.Trial", result: Result) -> None:
        value, before = float(result.accuracy or 0.0), self.best
        better = before is None or (value, -asked.number) > rank(before)
        if better:  # written first: what the study calls the best must be there
            files.save(self.file(asked), result.trial.built, result.parameters)
        told = self._end(asked, "COMPLETE", value)
        if better:
            self.best = told
            if before is not None:
                self.file(before).unlink(missing_ok=True)

    def _end(self, asked: "optuna.Trial", state: str, value: float | None = None) -> Any:
        from optuna.trial import TrialState

        told = self.study.tell(asked, value, state=TrialState[state])
        self.done += 1
        self._partial(asked).unlink(missing_ok=True)
        return told

    def _partial(self, trial: Any) -> Path:
        """Where a trial may keep its checkpoints while it is trained."""
        return self.folder / f"{self._stem(trial)}.partial.safetensors"

    def _stem(self, trial: Any) -> str:
        return f"trial-{origin(trial)}" + (f"-{self._token}" if self._token else "")

    def _tidy(self) -> None:
        """Remove what a killed process left of this study, but for what is still to be read.

        The folder may be anyone's, so a file is ours only if its name has the study's token.
        """
        from optuna.trial import TrialState

        waiting = self.study.get_trials(states=(TrialState.WAITING,))
        kept = {self._partial(trial) for trial in waiting}
        kept |= set() if self.best is None else {self.file(self.best)}
        # A file that was not written to its end starts with a dot.
        ours = re.compile(rf"\.?trial-\d+-{self._token}(\.partial)?\.safetensors(\.partial)?")
        for file in self.folder.glob("*.safetensors*") if self._token else ():
            if ours.fullmatch(file.name) and file not in kept:
                file.unlink()
