"""What a search came to, as plain data: every trial, the best one, and what mattered."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pareo import __version__, machine
from pareo.data import Dataset
from pareo.device import Device
from pareo.parallel.tuning.search import Search
from pareo.parallel.tuning.study import counts
from pareo.training import checkpoint as files
from pareo.training.evaluate import Evaluator, as_inputs

if TYPE_CHECKING:
    import optuna

SCHEMA = 1


def collected(
    search: Search, data: Dataset, device: Device, about: dict[str, Any]
) -> dict[str, Any]:
    """The result of a search; the best network is tested on the test images, which none has seen.

    Trials that were cut off with their process, and begun anew, are not in it.
    """
    best = search.best
    return {
        "schema": SCHEMA,
        "kind": "tune",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        **about,
        "device": str(device),
        "wanted": search.wanted,
        "trials": [plain(trial) for trial in search.study.trials if counts(trial)],
        "best": None if best is None else best.number,
        "test_accuracy": None if best is None else tested(search, data, device),
        "importances": importances(search.study),
        "machine": machine.describe(),
        "versions": {"pareo": __version__, **machine.libraries()},
    }


def plain(trial: "optuna.trial.FrozenTrial") -> dict[str, Any]:
    """One trial as JSON can hold it."""
    names = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
    last = max(trial.intermediate_values, default=None)
    return {
        "number": trial.number,
        "state": names[trial.state.name],
        "accuracy": None if last is None else trial.intermediate_values[last],
        "parameters": dict(trial.params),
        "curve": [trial.intermediate_values[key] for key in sorted(trial.intermediate_values)],
        "seconds": trial.user_attrs.get("seconds"),
        "how": trial.user_attrs.get("how"),
        "error": trial.user_attrs.get("error"),
    }


def tested(search: Search, data: Dataset, device: Device) -> float | None:
    """The accuracy of the best network on the test images; None where there are none."""
    kept = files.load(search.file(search.best))
    if not len(data.test_images):
        return None
    images = as_inputs(kept.network, data.as_float().test_images, "float32")
    forward = Evaluator(kept.network, device, min(len(images), 512))
    return float(forward(kept.parameters, images, data.test_labels)[1])


def importances(study: "optuna.Study") -> dict[str, float]:
    """How much each hyper-parameter decided; empty where too few trials are done to tell."""
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    values = {trial.value for trial in study.trials if trial.state.name == "COMPLETE"}
    if len(values) < 2:
        return {}
    # PED-ANOVA needs nothing but NumPy, and asks what sets the good trials apart.
    found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return {name: float(share) for name, share in found.items()}
