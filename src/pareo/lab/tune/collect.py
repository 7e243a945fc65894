"""The result of a search, collected from Optuna's study."""

from typing import TYPE_CHECKING, Any

from pareo.data import Dataset
from pareo.device import Device
from pareo.lab.tune.result import Trial, TuneResult
from pareo.parallel.tuning.search import Search
from pareo.parallel.tuning.study import counts, importances

if TYPE_CHECKING:
    import optuna


def collected(search: Search, data: Dataset, device: Device, about: dict[str, Any]) -> TuneResult:
    """The result of a search; the best network is tested on images that no trial used.

    Args:
        search: the search, which has ended.
        data: the dataset, with its test images.
        device: where the best network is tested.
        about: the fields of the result that were asked for: network, data, epochs and space.

    Trials that were cut off with their process, and started again, are left out.
    """
    best = search.best
    return TuneResult(
        **TuneResult.header("tune"),
        **about,
        device=str(device),
        wanted=search.wanted,
        trials=trials_of(search),
        best=None if best is None else best.number,
        test_accuracy=search.test_best(data, device),
        importances=importances(search.study),
    )


def trials_of(search: Search) -> list[Trial]:
    """The trials of a search that have ended so far."""
    trials = search.study.get_trials(deepcopy=False)
    return [_trial(trial) for trial in trials if counts(trial)]


def _trial(trial: "optuna.trial.FrozenTrial") -> Trial:
    states = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
    curve = [trial.intermediate_values[key] for key in sorted(trial.intermediate_values)]
    return Trial(
        number=trial.number,
        state=states[trial.state.name],  # type: ignore[arg-type]
        accuracy=curve[-1] if curve else None,
        parameters=dict(trial.params),
        curve=curve,
        seconds=trial.user_attrs.get("seconds"),
        how=trial.user_attrs.get("how"),
        error=trial.user_attrs.get("error"),
    )
