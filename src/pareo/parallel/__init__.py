"""All of the machine: many networks at once, or many workers on one."""

from pareo.parallel.many import train_many
from pareo.parallel.scoring import score_many
from pareo.parallel.trial import Report, Result, Trial

__all__ = ["Report", "Result", "Trial", "score_many", "train_many"]
