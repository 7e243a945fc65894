"""Training: the step, the training loop, checkpoints."""

from pareo.training.callbacks import Callback
from pareo.training.checkpoint import Checkpoint, load, save
from pareo.training.evaluate import Evaluation, Evaluator, probabilities
from pareo.training.fit import DivergenceError, Result, fit
from pareo.training.history import Epoch, History
from pareo.training.settings import SettingError, Settings
from pareo.training.step import Step

__all__ = [
    "Callback",
    "Checkpoint",
    "DivergenceError",
    "Epoch",
    "Evaluation",
    "Evaluator",
    "History",
    "Result",
    "SettingError",
    "Settings",
    "Step",
    "fit",
    "load",
    "probabilities",
    "save",
]
