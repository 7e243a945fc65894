"""The study: Optuna's record of every trial, which alone says what was done and what is left."""

import fcntl
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pareo.errors import DataError, PareoError

if TYPE_CHECKING:
    import optuna

SAMPLERS = ("tpe", "random")
PRUNERS = ("median", "hyperband", "none")
MISSING = "pareo tune needs Optuna: pip install 'pareo[tune]'"


def import_optuna() -> Any:
    """Optuna, without its own log; where it is missing, a sentence says how to install it."""
    try:
        import optuna
    except ImportError as error:
        raise PareoError(MISSING) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@contextmanager
def opened(
    storage: str,
    name: str,
    about: dict[str, Any],
    sampler: str = "tpe",
    pruner: str = "median",
    seed: int = 0,
) -> "Iterator[optuna.Study]":
    """The study of a name in a storage, made where there is none yet, for us alone.

    Args:
        storage: a file for SQLite, a file that ends in `.journal`, or the URL of a database.
        name: of the study; a storage may hold several.
        about: what is searched on what; a study that was made for something else is refused.
        sampler: 'tpe' or 'random'.
        pruner: 'median', 'hyperband' or 'none'; `about["epochs"]` is hyperband's largest resource.
        seed: of the sampler.

    Trials that a dead process left running are marked as failed, and queued once more.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with opened(f"{folder}/a.sqlite", "mlp", {"epochs": 1}) as study:
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
        # With the seed alone, a search that goes on would propose what it began with.
        stream = np.random.SeedSequence([seed, len(study.trials)]).generate_state(1)
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        study.sampler = samplers[sampler](seed=int(stream[0]))
        _queue_abandoned(optuna, study)
        yield study


def counts(trial: "optuna.trial.FrozenTrial") -> bool:
    """Whether a trial is one of those that were asked for: it ended, well or with its own error."""
    from optuna.trial import TrialState

    if trial.state == TrialState.FAIL:
        return "error" in trial.user_attrs
    return bool(trial.state.is_finished())


def rank(trial: Any) -> tuple[float, int]:
    """The larger, the better: of equals the one that was proposed first."""
    return float(trial.value), -trial.number


def best_of(study: "optuna.Study") -> "optuna.trial.FrozenTrial | None":
    """The best trial that was trained to its end, or None before there is one."""
    from optuna.trial import TrialState

    return max(study.get_trials(states=(TrialState.COMPLETE,)), key=rank, default=None)


def origin(trial: Any) -> int:
    """The number under which a trial was first begun; another one where it was queued again."""
    return int(trial.user_attrs.get("again", trial.number))


def token(study: "optuna.Study") -> str:
    """What the names of this study's files end in, and nobody else's; empty for an old study."""
    found = study.user_attrs.get("files", "")
    if not re.fullmatch("([0-9a-f]{8})?", str(found)):
        raise DataError(f"study '{study.study_name}': expected 8 hexadecimal digits; got {found!r}")
    return str(found)


def _queue_abandoned(optuna: Any, study: "optuna.Study") -> None:
    """Nobody else has the study, so what is still running has died with its process."""
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
    """A file is ours alone; the lock goes with the process, however that ends."""
    if "://" in storage:  # a server's: that no other search has the study is the user's to see to
        yield
        return
    path = Path(f"{storage}.busy")  # Optuna has a .lock of its own
    try:
        stream = path.open("a")  # never truncated: it may be anyone's
    except OSError as error:
        raise DataError(f"{storage}: cannot be written: {error.strerror}") from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataError(f"{storage}: another pareo tune is at work on it") from error
        yield
