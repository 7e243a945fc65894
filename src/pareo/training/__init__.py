"""Training: the step, the training loop, checkpoints."""

from pareo.training.checkpoint import Checkpoint, load, save
from pareo.training.evaluate import Evaluator, probabilities
from pareo.training.fit import DivergenceError, Result, fit
from pareo.training.history import Epoch, History
from pareo.training.settings import SettingError
from pareo.training.step import Step

__all__ = [
    "Checkpoint",
    "DivergenceError",
    "Epoch",
    "Evaluator",
    "History",
    "Result",
    "SettingError",
    "Step",
    "fit",
    "load",
    "probabilities",
    "save",
]
