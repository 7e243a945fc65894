"""The search: Optuna proposes trials, pareo trains them, until there are as many as wanted."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pareo.data import Dataset
from pareo.device import Device
from pareo.errors import PareoError
from pareo.interrupt import Interrupt
from pareo.parallel.trials.trial import Result, Trial
from pareo.parallel.tuning.local import NumberedTrial, Report
from pareo.parallel.tuning.space import Space
from pareo.parallel.tuning.study import best_of, counts, origin, rank, token
from pareo.training import checkpoint as files
from pareo.training.evaluate import Evaluator, as_inputs
from pareo.training.history import Epoch

if TYPE_CHECKING:
    import optuna

POLL_SECONDS = 0.2  # how soon Ctrl-C is noticed


class Workers(Protocol):
    """What trains the trials: threads of this process, or tasks of a Ray cluster.

    slots:       how many trials at the same time
    synchronous: whether all trials of a round start at the same time
    """

    slots: int
    synchronous: bool

    def start(self, trials: Sequence[NumberedTrial], report: Report) -> None:
        """Start to train; `report` is called after every epoch, and ends the trial if True."""

    def finished(self, seconds: float) -> list[tuple[int, Result]]:
        """The trials that ended within so many seconds, by number."""


@dataclass
class Search:
    """A search that is running.

    study:      Optuna's; it keeps everything that must survive this process
    space:      what is searched
    make_trial: the trial for some hyper-parameters
    workers:    what trains the trials
    wanted:     number of trials in all
    folder:     for checkpoints, and for the best network so far
    watch:      called after every change
    """

    study: "optuna.Study"
    space: Space
    make_trial: Callable[[dict[str, Any]], Trial]
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
        """The file of a trial's network, which exists while the trial is the best."""
        return self.folder / f"{self._stem(trial)}.safetensors"

    def test_best(self, data: Dataset, device: Device) -> float | None:
        """Accuracy of the best network on the test images; None where there is none to test."""
        if self.best is None or not len(data.test_images):
            return None
        kept = files.load(self.file(self.best))
        images = as_inputs(kept.network, data.as_float().test_images, "float32")
        evaluate = Evaluator(kept.network, device, min(len(images), 512))
        return evaluate(kept.parameters, images, data.test_labels)[1]

    def _start(self) -> None:
        """Start as many trials as there are free slots."""
        trials: list[NumberedTrial] = []
        while self._has_slot(trials):
            asked = self.study.ask(self.space.distributions())
            try:
                trial = self.make_trial({**self.space.fixed, **asked.params})
            except PareoError as error:
                asked.set_user_attr("error", str(error))
                self._end(asked, "FAIL")
                continue
            self.running[asked.number] = asked
            trials.append(NumberedTrial(asked.number, trial, self._partial(asked)))
        if trials:
            self.workers.start(trials, self._report)

    def _has_slot(self, new: Sequence[NumberedTrial]) -> bool:
        busy = len(self.running)
        if self.interrupted or self.done + busy >= self.wanted:
            return False
        late = self.workers.synchronous and busy > len(new)  # a round has already started
        return busy < self.workers.slots and not late

    def _report(self, number: int, epoch: Epoch) -> bool:
        """An epoch of a trial; called by workers, in their threads."""
        asked = self.running[number]
        self.epochs[number] = epoch
        asked.report(epoch.accuracy or 0.0, epoch.number)
        self.watch(self)
        return self.interrupted or bool(asked.should_prune())

    def _tell(self, asked: "optuna.Trial", result: Result) -> None:
        """Tell Optuna what became of a trial.

        A trial that Ctrl-C ended stays open, and is queued again by the next search.
        """
        self.epochs.pop(asked.number, None)
        if result.stopped and self.interrupted:
            return
        # A trial that was resumed from a checkpoint has not reported its first epochs here.
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
        if better:  # written first: the file of the best trial must always exist
            files.save(self.file(asked), result.trial.built, result.weights)
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
        """The file for the checkpoints of a trial while it is trained."""
        return self.folder / f"{self._stem(trial)}.partial.safetensors"

    def _stem(self, trial: Any) -> str:
        return f"trial-{origin(trial)}" + (f"-{self._token}" if self._token else "")

    def _tidy(self) -> None:
        """Remove files that a killed process left, except those that are still needed.

        The folder may hold other files: only names with this study's token are removed.
        """
        from optuna.trial import TrialState

        waiting = self.study.get_trials(states=(TrialState.WAITING,))
        kept = {self._partial(trial) for trial in waiting}
        kept |= set() if self.best is None else {self.file(self.best)}
        # The name of a file that was not written completely starts with a dot.
        ours = re.compile(rf"\.?trial-\d+-{self._token}(\.partial)?\.safetensors(\.partial)?")
        for file in self.folder.glob("*.safetensors*") if self._token else ():
            if ours.fullmatch(file.name) and file not in kept:
                file.unlink()
