"""The study: exactly as many trials as were asked for, even if processes died in between."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest

from pareo import Device
from pareo.data import load
from pareo.errors import DataError
from pareo.lab.experiment.results import checked, plain
from pareo.lab.tune.collect import collected
from pareo.nn import networks
from pareo.parallel.trials.train_trial import train_one
from pareo.parallel.trials.trial import Result
from pareo.parallel.tuning.local import NumberedTrial, Population, Report, Threads
from pareo.parallel.tuning.proposal import POPULATION, Maker, population
from pareo.parallel.tuning.search import Search
from pareo.parallel.tuning.space import Space, parse
from pareo.parallel.tuning.study import best_of, counts, open_study
from pareo.training import checkpoint as files

DATA = load("synthetic:6:2:60")
SPACE = parse({"rate": {"low": 0.01, "high": 1.0, "log": True}, "width": [2, 3]})
ABOUT = {"epochs": 3}
STATES = optuna.trial.TrialState
# Searches here keep a journal, which is quickly made; those of tests/cli/test_tune.py use SQLite.


def maker(**usual: Any) -> Maker:
    return Maker(networks.mlp([6, 4, 2]), DATA, 3, {"batch_size": 10, **usual})


def searched(
    folder: Path, wanted: int, space: Space = SPACE, make_trial: Any = None, **options: Any
) -> Search:
    workers = options.pop("workers", None) or Threads(DATA, Device("vectorized"), 2)
    with open_study(str(folder / "a.journal"), "mlp", ABOUT, **options) as study:
        search = Search(study, space, make_trial or maker(), workers, wanted, folder / "kept")
        search.run()
        return search


def ended(search: Search) -> list[str]:
    return [trial.state.name for trial in search.study.trials if counts(trial)]


def test_a_search_does_what_was_asked_and_keeps_the_best(tmp_path: Path) -> None:
    search = searched(tmp_path, 6)
    assert len(ended(search)) == len(search.study.trials) == 6
    best = best_of(search.study)
    assert best is not None
    assert best.value == max(t.value for t in search.study.trials if t.value is not None)
    [file] = (tmp_path / "kept").glob("*")
    kept = files.load(file)
    # The file is the network that the study says: trained again, it has the same bits.
    again = Threads(DATA, Device("vectorized", 2), 2)
    again.start([NumberedTrial(0, maker()(best.params), file)], lambda number, epoch: False)
    [(_, result)] = again.finished(60)
    assert result.accuracy == best.value
    assert all((kept.parameters[path] == a).all() for path, a in result.parameters.items())


def test_more_trials_go_on_where_the_search_ended(tmp_path: Path) -> None:
    first = searched(tmp_path, 3, sampler="random")
    begun = [trial.params["rate"] for trial in first.study.trials]
    second = searched(tmp_path, 5, sampler="random")
    assert len(ended(second)) == 5
    rates = [trial.params["rate"] for trial in second.study.trials]
    assert rates[:3] == begun
    assert len(set(rates)) == 5  # the sampler does not start again
    assert len(ended(searched(tmp_path, 2, sampler="random"))) == 5


class Dying(Threads):
    """Workers whose process dies while the second of their trials is trained."""

    def finished(self, seconds: float) -> list[tuple[int, Result]]:
        found = super().finished(60)
        if found[0][0] >= 1:
            raise SystemExit("killed")
        return found


def test_trials_of_a_dead_process_are_started_again_and_not_counted(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        searched(tmp_path, 4, workers=Dying(DATA, Device("vectorized"), 1))
    search = searched(tmp_path, 4)
    states = [trial.state for trial in search.study.trials]
    assert len(ended(search)) == 4
    assert states.count(STATES.FAIL) == 1
    assert STATES.RUNNING not in states
    assert STATES.WAITING not in states
    lost, again = search.study.trials[1:3]
    assert again.user_attrs["again"] == lost.number
    assert again.params == lost.params


def test_a_trial_that_fails_is_one_of_those_asked_for(tmp_path: Path) -> None:
    space = parse({"rate": [1e-3, 1e30]})
    search = searched(tmp_path, 4, space, sampler="random", seed=1)
    about = {"network": "mlp", "data": "synthetic", "epochs": 3, "space": space.plain()}
    result = collected(search, DATA, Device("vectorized"), about)
    states = {trial.parameters["rate"]: trial.state for trial in result.trials}
    assert states == {1e-3: "complete", 1e30: "failed"}
    assert len(result.trials) == 4
    errors = {trial.error for trial in result.trials if trial.error}
    assert all("the loss became" in error for error in errors)
    assert result.best_trial is not None
    assert result.best_trial.parameters == {"rate": 1e-3}
    assert checked(plain(result), "again") == result


def test_hyper_parameters_that_no_network_has(tmp_path: Path) -> None:
    def make_trial(found: Any) -> Any:
        raise DataError("no such network")

    search = searched(tmp_path, 3, make_trial=make_trial)
    assert ended(search) == ["FAIL"] * 3
    assert search.best is None


@pytest.mark.parametrize("pruner", ["median", "hyperband"])
def test_poor_trials_are_pruned(pruner: str, tmp_path: Path) -> None:
    space = parse({"rate": {"low": 0.01, "high": 0.5, "log": True}})
    workers = Threads(DATA, Device("vectorized"), 1)  # one at a time: the same ones every time
    search = searched(tmp_path, 16, space, workers=workers, pruner=pruner, sampler="random")
    states = ended(search)
    assert len(states) == 16
    assert 0 < states.count("PRUNED") < 16
    for trial in search.study.trials:
        if trial.state == STATES.PRUNED:
            assert len(trial.intermediate_values) < 3


def test_a_study_of_something_else_is_refused(tmp_path: Path) -> None:
    searched(tmp_path, 1)
    file = str(tmp_path / "a.journal")
    with (
        pytest.raises(DataError, match="its study 'mlp' has epochs 3, not 4; choose another"),
        open_study(file, "mlp", {"epochs": 4}),
    ):
        pass
    with (
        open_study(file, "mlp", ABOUT),
        pytest.raises(DataError, match="another pareo tune is using it"),
        open_study(file, "mlp", ABOUT),
    ):
        pass


@pytest.mark.parametrize(
    ("storage", "told"),
    [
        ("{folder}/no/where.sqlite", "cannot be written: No such file"),
        ("{folder}/text.sqlite", "file is not a database"),
        ("nonsense://here", "expected a storage for Optuna"),
        ("mysql+nonsense://here", "expected a storage for Optuna"),
    ],
)
def test_storages_that_are_none(storage: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "text.sqlite").write_text("no database" * 100)
    with (
        pytest.raises(DataError, match=told) as error,
        open_study(storage.format(folder=tmp_path), "mlp", ABOUT),
    ):
        pass
    assert "\n" not in str(error.value)


def test_populations_are_rounds_and_count_as_threads_do(tmp_path: Path) -> None:
    rounds: list[int] = []

    class Watched(Population):
        def start(self, trials: Sequence[NumberedTrial], report: Report) -> None:
            rounds.append(len(trials))
            super().start(trials, report)

    search = searched(tmp_path, 10, workers=Watched(DATA, Device("vectorized"), 4))
    assert rounds == [4, 4, 2]
    assert len(ended(search)) == len(search.study.trials) == 10
    assert {trial.user_attrs["how"] for trial in search.study.trials} == {"population"}
    # What the study says of a member is what the same trial comes to alone.
    best = best_of(search.study)
    assert best is not None
    alone = train_one(maker()(best.params), DATA, Device("vectorized"), "serial")
    assert alone.accuracy == best.value


def test_a_population_is_for_networks_of_one_shape() -> None:
    many = Maker(networks.mlp("small"), load("synthetic:1x28x28:10:1200"), 1, {})
    device = Device("compiled", 2)
    assert population(many, parse({"rate": [0.1, 0.2]}), device) == POPULATION
    assert population(many, parse({"rate": [0.1, 0.2], "width": [8, 9]}), device) == 1
    assert population(many, parse({"batch_size": [32, 64]}), device) == 1


def test_a_trial_is_resumed_from_its_checkpoint(tmp_path: Path) -> None:
    trial, device = maker(momentum=0.9)({"rate": 0.1}), Device("vectorized", 1)
    file = tmp_path / "a.safetensors"
    whole = train_one(trial, DATA, device, "serial")
    first = train_one(trial, DATA, device, "serial", lambda epoch: True, checkpoint=file)
    assert first.stopped
    assert len(first.history) == 1
    seen: list[int] = []
    rest = train_one(
        trial, DATA, device, "serial", lambda epoch: seen.append(epoch.number), checkpoint=file
    )
    assert seen == [2, 3]
    assert rest.history.column("loss") == whole.history.column("loss")
    assert all((rest.parameters[path] == a).all() for path, a in whole.parameters.items())
    # A trial that has ended already is returned at once.
    again = train_one(trial, DATA, device, "serial", checkpoint=file)
    assert again.accuracy == whole.accuracy
    assert len(again.history) == 3


class Interrupting(Threads):
    """Workers that interrupt the search as soon as a trial reports."""

    search: Search

    def start(self, trials: Sequence[NumberedTrial], report: Report) -> None:
        def stopped(number: int, epoch: Any) -> bool:
            self.search.interrupted = True
            return report(number, epoch)

        super().start(trials, stopped)


def test_ctrl_c_leaves_trials_open(tmp_path: Path) -> None:
    workers = Interrupting(DATA, Device("vectorized"), 1)
    with open_study(str(tmp_path / "a.journal"), "mlp", ABOUT) as study:
        workers.search = Search(study, SPACE, maker(), workers, 3, tmp_path / "kept")
        workers.search.run()
        assert [trial.state for trial in study.trials] == [STATES.RUNNING]
    assert len(ended(searched(tmp_path, 3))) == 3


def test_only_files_of_this_study_are_removed(tmp_path: Path) -> None:
    search = searched(tmp_path, 2)
    kept = tmp_path / "kept"
    [best] = kept.glob("*")
    others = [
        "my-trial-3.safetensors", "trial-1.safetensors", "trial-final.safetensors.bak",
        "trial-1-0123abcd.safetensors", ".trial-1.safetensors.partial",
    ]  # fmt: skip
    for name in others:  # the user's, or of another study in the same folder
        (kept / name).write_text("precious")
    left = [search._partial(search.study.trials[0]), search.file(search.study.trials[1])]
    left = [file for file in left if file != best]
    left += [file.with_name(f".{file.name}.partial") for file in left]
    for file in left:  # what a killed process leaves
        file.write_text("x")
    assert len(ended(searched(tmp_path, 2))) == 2
    assert {file.name for file in kept.iterdir()} == {best.name, *others}


def test_a_study_from_outside_decides_no_path(tmp_path: Path) -> None:
    storage = str(tmp_path / "a.journal")
    with open_study(storage, "mlp", ABOUT) as study:
        study.set_user_attr("files", "/../../victim")
    with pytest.raises(DataError, match="expected 8 hexadecimal digits; got"):
        searched(tmp_path, 2)
