"""The result of `pareo tune`: docs/howto-tune.md describes its fields."""

from dataclasses import dataclass
from typing import Literal

from pareo.lab.experiment.results import Amount, Count, Json, Natural, Number, Result
from pareo.parallel.tuning.space import Space, parse

State = Literal["complete", "pruned", "failed"]


@dataclass(kw_only=True)
class Trial:
    """One trial of a search.

    accuracy: on the validation images, after its last epoch; `curve` has it after each epoch.
    how: in which way it was trained. error: why it failed.
    """

    number: Natural
    state: State
    accuracy: Number | None
    parameters: dict[str, Json]
    curve: list[Number]
    seconds: Amount | None
    how: str | None = None
    error: str | None = None


@dataclass(kw_only=True)
class TuneResult(Result):
    """Everything that is known of a search.

    wanted: how many trials were asked for. best: the number of the best trial.
    test_accuracy: of the best network. importances: how much each hyper-parameter decided.
    """

    data: str
    device: str
    epochs: Count
    wanted: Count
    space: dict[str, Json]
    trials: list[Trial]
    best: Natural | None = None
    test_accuracy: Number | None = None
    importances: dict[str, Number]

    def __post_init__(self) -> None:
        super().__post_init__()
        space = self.parsed_space
        for place, trial in enumerate(self.trials):
            if trial.accuracy is None:
                continue  # it may have failed before it had hyper-parameters
            for name in space.searched:
                if not space.has(name, trial.parameters.get(name)):
                    expected = space.expected(name)
                    raise ValueError(
                        f"Expected {expected} - at `$.trials[{place}].parameters.{name}`"
                    )
        if len({trial.number for trial in self.trials}) < len(self.trials):
            raise ValueError("Expected trials with numbers that differ - at `$.trials`")
        if self.best is not None and self.best_trial is None:
            raise ValueError("Expected the number of a trial that has an accuracy - at `$.best`")

    @property
    def parsed_space(self) -> Space:
        """What was searched."""
        return parse(self.space)

    @property
    def judged(self) -> list[Trial]:
        """The trials that have an accuracy."""
        return [trial for trial in self.trials if trial.accuracy is not None]

    @property
    def best_trial(self) -> Trial | None:
        """The best trial, or None where no trial finished."""
        return next((trial for trial in self.judged if trial.number == self.best), None)


RESULTS = {"tune": TuneResult}
