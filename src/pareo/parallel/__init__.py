"""All of the machine: many networks at once, or many workers on one."""

from pareo.parallel.trials.many import train_many
from pareo.parallel.trials.prediction import Prediction, predict
from pareo.parallel.trials.scoring import score_many
from pareo.parallel.trials.trial import Report, Result, Trial

__all__ = ["Prediction", "Report", "Result", "Trial", "predict", "score_many", "train_many"]
