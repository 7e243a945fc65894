"""Train one trial in this thread; an error is part of its result."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pareo.data import Dataset
from pareo.device import Device
from pareo.parallel.group.errors import sentence
from pareo.parallel.trials.trial import Result, Trial
from pareo.training.fit import fit
from pareo.training.history import Epoch
from pareo.training.result import Result as Fitted


def train_one(
    trial: Trial,
    data: Dataset,
    device: Device,
    how: str,
    report: Callable[[Epoch], Any] = lambda epoch: None,
    threads: Callable[[], int] | None = None,
    checkpoint: Path | None = None,
) -> Result:
    """Train one trial on a device; an error is reported in its result.

    `report` is called after each epoch and ends the trial by returning True. `threads` is called
    between steps and returns the number of cores that the trial has now. `checkpoint` is a file,
    which is written after each epoch. If it exists already, training continues from it.

    >>> from pareo.data import load
    >>> from pareo.nn import networks
    >>> trial = Trial(networks.mlp([16, 8, 3]), rate=1e30, batch_size=20, epochs=9)
    >>> train_one(trial, load("synthetic:16:3:120"), Device("vectorized"), "serial").error
    'the loss became nan in epoch 1, step 2: try a rate below 1e+30'
    """
    result = Result(trial, how)
    resume = checkpoint if checkpoint is not None and checkpoint.exists() else None
    begin = time.perf_counter()

    def keep(fitted: Fitted) -> None:
        result.history, result.parameters = fitted.history, fitted.parameters
        result.average = fitted.weights if trial.average else {}

    def after_epoch(fitted: Fitted) -> bool:
        last = fitted.history[-1]
        keep(fitted)
        result.stopped = report(last) is True and last.number < trial.epochs
        return result.stopped

    try:
        fitted = fit(
            trial.built, data, trial.settings(), epochs=trial.epochs, device=device,
            callbacks=[after_epoch], progress=False, threads=threads,
            checkpoint=checkpoint, resume=resume,
        )  # fmt: skip
        keep(fitted)
    except Exception as error:
        result.error = sentence(error)
    result.seconds = time.perf_counter() - begin
    return result


def untested(data: Dataset) -> Dataset:
    """The data without its test images, to train without tests.

    >>> from pareo.data import load
    >>> len(untested(load("synthetic:16:3:120")).test_images)
    0
    """
    return Dataset(
        data.name, data.images, data.labels, data.images[:0], data.labels[:0], data.classes,
        data.class_names,
    )  # fmt: skip
