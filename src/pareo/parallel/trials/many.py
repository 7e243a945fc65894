"""`train_many`: train many networks, each with its own settings, on one whole machine."""

from collections.abc import Callable, Sequence

from pareo.data import Dataset
from pareo.device import Device
from pareo.errors import PareoError
from pareo.interrupt import Interrupt
from pareo.parallel.trials.population.training import train_in_population
from pareo.parallel.trials.prediction import predict
from pareo.parallel.trials.processes import train_in_processes
from pareo.parallel.trials.schedule import NOT_BEGUN
from pareo.parallel.trials.threads import train_in_threads
from pareo.parallel.trials.train_trial import train_one, untested
from pareo.parallel.trials.trial import Listener, Report, Result, Trial
from pareo.training.history import Epoch

Strategy = Callable[[Sequence[Trial], Dataset, Device, Listener], list[Result]]


def train_serially(
    trials: Sequence[Trial], data: Dataset, device: Device, listener: Listener
) -> list[Result]:
    """Train trials one after the other, each with all of the device's threads."""
    results = []
    for number, trial in enumerate(trials):
        if listener.stop_requested():
            results.append(Result(trial, "serial", error=NOT_BEGUN))
            continue

        def report(epoch: Epoch, number: int = number) -> bool:
            return listener(number, epoch)

        results.append(train_one(trial, data, device, "serial", report, lambda: device.threads))
    return results


STRATEGIES: dict[str, Strategy] = {
    "serial": train_serially,
    "threads": train_in_threads,
    "processes": train_in_processes,
    "population": train_in_population,
}


def train_many(
    trials: Sequence[Trial],
    data: Dataset,
    how: str = "auto",
    workers: int | None = None,
    device: Device | str = "compiled",
    report: Report | None = None,
    test: bool = True,
) -> list[Result]:
    """Train many networks on the same data; return their results in the order of the trials.

    A trial that fails has a result with an `error`; the others continue.

    Args:
        trials: the networks to train, with their settings.
        data: a `pareo.data.Dataset`; it is shared, not copied.
        how: 'serial', one after the other with all cores; 'threads', one for each core, the longest
            first, where a core without a trial helps the others; 'processes', the same in processes
            that read one copy of the data; 'population', networks of one shape as one program;
            'auto', what `pareo.parallel.predict` expects to be fastest. Each result's `how` says
            which it was.
        workers: the number of CPU cores to use; None is all that the device has.
        report: called as report(number, epoch) after each epoch of trials[number], in any order
            between trials; if it returns True, that trial ends.
        test: whether to test each network after each of its epochs.

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
    if how not in ("auto", *STRATEGIES):
        raise PareoError(f"train_many expects how to be auto, {', '.join(STRATEGIES)}; got {how!r}")
    if not trials:
        return []
    chosen = predict(trials, data, place).how if how == "auto" else how
    if place.name == "cuda" and chosen in ("threads", "processes"):
        raise PareoError(f"on 'cuda' networks train in a population or serially; got {how!r}")
    with Interrupt() as interrupt:
        listener = Listener(report, lambda: interrupt.asked)
        floats = data.as_float()
        tested = floats if test else untested(floats)
        return STRATEGIES[chosen](trials, tested, place, listener)
