"""`train_many`: many networks, each with its own settings, on all of one machine."""

from collections.abc import Sequence
from typing import Any

from pareo.data import Dataset
from pareo.device import Device
from pareo.errors import PareoError
from pareo.parallel.one import train_one
from pareo.parallel.trial import Report, Result, Trial

HOWS = ("serial",)


def train_many(
    trials: Sequence[Trial],
    data: Dataset,
    how: str = "auto",
    workers: int | None = None,
    device: Device | str = "compiled",
    report: Report | None = None,
) -> list[Result]:
    """Train many networks on the same data; their results, in the order of the trials.

    A trial that fails is a result with an `error`; the others go on.

    Args:
        trials: what to train.
        data: a `pareo.data.Dataset`; it is shared, not copied.
        how: 'serial' (one after the other), or 'auto'.
        workers: how many CPU cores to use; None is all that the device has.
        report: called as report(number, epoch) after each epoch of trials[number], in any order
            between trials; where it returns True, that trial ends.

    Example:
        >>> from pareo.data import load
        >>> from pareo.nn import networks
        >>> network = networks.mlp([16, 8, 3])
        >>> trials = [Trial(network, rate=rate, batch_size=20, epochs=9) for rate in (0.1, 0.2)]
        >>> results = train_many(trials, load("synthetic:16:3:120"))
        >>> [result.accuracy for result in results]
        [1.0, 1.0]
    """
    place = Device(device) if isinstance(device, str) else device
    if workers is not None:
        place = Device(str(place), workers, place.precision)
    if how not in ("auto", *HOWS):
        raise PareoError(f"train_many expects how to be auto, {', '.join(HOWS)}; got {how!r}")
    floats = data.as_float()
    return [
        train_one(trial, floats, place, "serial", **_reporter(report, number))
        for number, trial in enumerate(trials)
    ]


def _reporter(report: Report | None, number: int) -> dict[str, Any]:
    return {} if report is None else {"report": lambda epoch: report(number, epoch)}
