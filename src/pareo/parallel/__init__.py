"""All of the machine: many networks at the same time, or many workers on one network.

`trials`    many networks: in threads, in processes, as a population, on a Ray cluster
`data`      one network, every batch split over workers
`model`     one network, split by layers (`pipeline`) or by neurons (`neurons`)
`group`     what the workers of one network have in common
`tuning`    a search for good settings (`pareo tune`)
"""

from pareo.parallel.trials.many import train_many
from pareo.parallel.trials.prediction import Prediction, predict
from pareo.parallel.trials.scoring import score_many
from pareo.parallel.trials.trial import Report, Result, Trial

__all__ = ["Prediction", "Report", "Result", "Trial", "predict", "score_many", "train_many"]
