"""Strategies for one network, or several of the same: task, data and model parallelism."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np

from pareo.data import Dataset
from pareo.device import Device
from pareo.lab.parallel.engine import Strategy, Turn
from pareo.lab.parallel.names import ALONE, INSIDE, SERIAL_TASKS
from pareo.lab.parallel.tasks import by_train_many, in_processes, tested
from pareo.nn.network import Sequential
from pareo.parallel import data as data_parallel
from pareo.parallel import model as model_parallel
from pareo.parallel.group.result import Outcome
from pareo.parallel.trials.scoring import score_many
from pareo.parallel.trials.train_trial import train_one, untested
from pareo.parallel.trials.trial import Trial
from pareo.training.settings import Settings

RATE = 0.01

Fit = Callable[..., Outcome]
ONE_NETWORK: dict[str, tuple[Fit, str]] = {
    "data, threads": (data_parallel.fit, "threads"),
    "data, processes": (data_parallel.fit, "processes"),
    "model, pipeline in threads": (model_parallel.pipeline, "threads"),
    "model, pipeline in processes": (model_parallel.pipeline, "processes"),
    "model, neurons in threads": (model_parallel.neurons, "threads"),
}
MANY = ("threads", "processes", "population")


def strategies(
    network: Sequential,
    data: Dataset,
    batch: int,
    workers: Sequence[int],
    tasks: int,
    stack: ExitStack,
) -> list[Strategy]:
    """Every strategy with every number of workers; the first is one worker alone."""
    trials = [Trial(network, rate=RATE, batch_size=batch, seed=seed) for seed in range(tasks)]

    def task_strategy(name: str, how: str, count: int) -> Strategy:
        run = (
            in_processes(trials, data, count, count, stack)
            if how == "processes"
            else by_train_many(trials, data, how, count)
        )
        return Strategy(name, count, run, networks=tasks)

    found = [
        Strategy(ALONE, 1, _alone(network, data, batch, 1)),
        task_strategy(SERIAL_TASKS, "serial", 1),
    ]
    for count in workers:
        if count == 1:
            continue
        found.append(Strategy(INSIDE, count, _alone(network, data, batch, count)))
        found += [
            Strategy(name, count, _one_network(fit, network, data, batch, count, how))
            for name, (fit, how) in ONE_NETWORK.items()
        ]
        found += [task_strategy(f"tasks, {how}", how, count) for how in MANY]
    return found


def _alone(network: Sequential, data: Dataset, batch: int, workers: int) -> Callable[[], Turn]:
    trial, train = Trial(network, rate=RATE, batch_size=batch), untested(data)
    device = Device("compiled", workers)

    def turn() -> Turn:
        result = train_one(trial, train, device, "serial", threads=lambda: workers)
        test = tested([result], lambda many: score_many(many, data, workers))
        return Turn(result.history.seconds, test, result.losses)

    return turn


def _one_network(
    fit: Fit, network: Sequential, data: Dataset, batch: int, workers: int, how: str
) -> Callable[[], Turn]:
    settings = Settings(batch_size=batch, rate=RATE)

    def turn() -> Turn:
        found = fit(network, data, settings, workers=workers, how=how)
        return Turn(
            found.train_seconds, found.test_seconds, [float(np.mean(found.losses))],
            found.share_of("communication"), found.share_of("idle"),
        )  # fmt: skip

    return turn
