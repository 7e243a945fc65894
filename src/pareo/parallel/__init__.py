"""All of the machine: many networks at once, or many workers on one."""

from pareo.parallel.many import train_many
from pareo.parallel.prediction import Prediction, predict
from pareo.parallel.scoring import score_many
from pareo.parallel.trial import Report, Result, Trial

__all__ = ["Prediction", "Report", "Result", "Trial", "predict", "score_many", "train_many"]
