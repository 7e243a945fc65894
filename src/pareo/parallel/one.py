"""One trial, trained here and now: whatever happens, there is a result."""

import time
from collections.abc import Callable
from typing import Any

from pareo.data import Dataset
from pareo.device import Device
from pareo.parallel.trial import Result, Trial, sentence
from pareo.training.fit import Result as Fitted
from pareo.training.fit import fit
from pareo.training.history import Epoch


def train_one(
    trial: Trial,
    data: Dataset,
    device: Device,
    how: str,
    report: Callable[[Epoch], Any] = lambda epoch: None,
    threads: Callable[[], int] | None = None,
) -> Result:
    """Train one trial on a device; an error ends up in its result.

    `report` is called after each epoch and ends the trial by returning True. `threads` is asked
    between steps how many of the machine's cores are for this trial now.

    >>> from pareo.data import load
    >>> from pareo.nn import networks
    >>> trial = Trial(networks.mlp([16, 8, 3]), rate=1e30, batch_size=20, epochs=9)
    >>> train_one(trial, load("synthetic:16:3:120"), Device("vectorized"), "serial").error
    'the loss became nan in epoch 1, step 2: try a rate below 1e+30'
    """
    result = Result(trial, how)
    begin = time.perf_counter()

    def after_epoch(fitted: Fitted) -> bool:
        result.history.add(fitted.history[-1])
        result.parameters = fitted.parameters
        result.stopped = report(fitted.history[-1]) is True and len(result.history) < trial.epochs
        return result.stopped

    try:
        fit(
            trial.built, data, trial.epochs, trial.batch_size, trial.rate, trial.momentum,
            trial.decay, device, seed=trial.seed, order=trial.order, schedule=trial.schedule,
            callbacks=[after_epoch], progress=False, threads=threads,
        )  # fmt: skip
    except Exception as error:
        result.error = sentence(error)
    result.seconds = time.perf_counter() - begin
    return result
