"""The study: Optuna's record of every trial, from which a search is resumed."""

import fcntl
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pareo.errors import DataError, PareoError, WriteError

if TYPE_CHECKING:
    import optuna

SAMPLERS = ("tpe", "random")
PRUNERS = ("median", "hyperband", "none")
MISSING = "pareo tune needs Optuna: pip install 'pareo[tune]'"


def import_optuna() -> Any:
    """Optuna, without its log; PareoError says how to install it where it is missing."""
    try:
        import optuna
    except ImportError as error:
        raise PareoError(MISSING) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@contextmanager
def open_study(
    storage: str,
    name: str,
    about: dict[str, Any],
    sampler: str = "tpe",
    pruner: str = "median",
    seed: int = 0,
) -> "Iterator[optuna.Study]":
    """The study of this name in a storage, created if needed, and locked while it is open.

    Args:
        storage: a file for SQLite, a file that ends in `.journal`, or the URL of a database.
        name: of the study; a storage may hold several.
        about: what is searched, on what data; a study of something else is refused.
        sampler: 'tpe' or 'random'.
        pruner: 'median', 'hyperband' or 'none'; `about["epochs"]` is hyperband's largest resource.
        seed: of the sampler.

    Trials that a dead process left running are marked as failed, and queued again.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_study(f"{folder}/a.sqlite", "mlp", {"epochs": 1}) as study:
    ...         len(study.trials)
    0
    """
    optuna = import_optuna()
    with _locked(storage):
        study = _created(optuna, storage, name)
        known = study.user_attrs.get("pareo", about)
        for key, value in about.items():
            if known.get(key, value) != value:
                raise DataError(
                    f"{storage}: its study '{name}' has {key} {known[key]!r:.60}, not "
                    f"{value!r:.60}; choose another --storage"
                )
        if not study.trials and "files" not in study.user_attrs:
            study.set_user_attr("files", secrets.token_hex(4))
        study.set_user_attr("pareo", about)
        study.pruner = _pruner(optuna, pruner, about["epochs"])
        # With the seed alone, a resumed search would propose its first trials again.
        stream = np.random.SeedSequence([seed, len(study.trials)]).generate_state(1)
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        study.sampler = samplers[sampler](seed=int(stream[0]))
        _queue_abandoned(optuna, study)
        yield study


def counts(trial: "optuna.trial.FrozenTrial") -> bool:
    """Whether a trial has ended, by itself or with an error of its own."""
    from optuna.trial import TrialState

    if trial.state == TrialState.FAIL:
        return "error" in trial.user_attrs
    return bool(trial.state.is_finished())


def rank(trial: Any) -> tuple[float, int]:
    """A key that is larger for better trials; of equals, the first one is the best."""
    return float(trial.value), -trial.number


def best_of(study: "optuna.Study") -> "optuna.trial.FrozenTrial | None":
    """The best completed trial; None before there is one."""
    from optuna.trial import TrialState

    return max(study.get_trials(states=(TrialState.COMPLETE,)), key=rank, default=None)


def origin(trial: Any) -> int:
    """The number under which a trial was first started, before it was queued again."""
    return int(trial.user_attrs.get("again", trial.number))


def token(study: "optuna.Study") -> str:
    """The suffix of the names of this study's files; empty for a study of an old version."""
    found = study.user_attrs.get("files", "")
    if not re.fullmatch("([0-9a-f]{8})?", str(found)):
        raise DataError(f"study '{study.study_name}': expected 8 hexadecimal digits; got {found!r}")
    return str(found)


def importances(study: "optuna.Study") -> dict[str, float]:
    """How much each hyper-parameter decided; empty where too few trials are complete to tell."""
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    values = {trial.value for trial in study.trials if trial.state.name == "COMPLETE"}
    if len(values) < 2:
        return {}
    # PED-ANOVA needs no library but NumPy, and tells what distinguishes the good trials.
    found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return {name: float(share) for name, share in found.items()}


def _queue_abandoned(optuna: Any, study: "optuna.Study") -> None:
    """Queue trials of dead processes: the study is locked, so no other process is running them."""
    for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        if trial.params:
            study.enqueue_trial(trial.params, user_attrs={"again": origin(trial)})


def _pruner(optuna: Any, name: str, epochs: int) -> Any:
    if name == "median":
        return optuna.pruners.MedianPruner()
    if name == "hyperband":
        return optuna.pruners.HyperbandPruner(max_resource=epochs)
    return optuna.pruners.NopPruner()


def _created(optuna: Any, storage: str, name: str) -> Any:
    from sqlalchemy.exc import SQLAlchemyError

    journal = optuna.storages.journal
    try:
        place: Any = storage
        if storage.endswith(".journal"):
            place = optuna.storages.JournalStorage(journal.JournalFileBackend(storage))
        elif "://" not in storage:
            place = f"sqlite:///{storage}"
        return optuna.create_study(
            storage=place, study_name=name, direction="maximize", load_if_exists=True
        )
    except (SQLAlchemyError, OSError, ImportError, RuntimeError, ValueError) as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise DataError(f"{storage}: expected a storage for Optuna; got: {reason}") from error


@contextmanager
def _locked(storage: str) -> Iterator[None]:
    """Lock the file of a storage; the kernel drops the lock when the process ends."""
    if "://" in storage:  # on a server, where users must avoid two searches of one study
        yield
        return
    path = Path(f"{storage}.busy")  # Optuna has a .lock of its own
    try:
        stream = path.open("a")  # never truncated: the file may be someone else's
    except OSError as error:
        raise WriteError(f"{storage}: cannot be written: {error.strerror}") from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataError(f"{storage}: another pareo tune is using it") from error
        yield
