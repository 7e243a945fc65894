"""The ways to use several workers for one network, or for several of it: task, data, model."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np

from pareo.data import Dataset, load
from pareo.device import Device
from pareo.lab.parallel.engine import Turn, Way, cpu_idle, tested
from pareo.nn.network import Sequential
from pareo.parallel import data as data_parallel
from pareo.parallel import model as model_parallel
from pareo.parallel.group.result import TrainingResult
from pareo.parallel.trials.many import train_many
from pareo.parallel.trials.processes import Processes
from pareo.parallel.trials.scoring import score_many
from pareo.parallel.trials.train_trial import train_one, untested
from pareo.parallel.trials.trial import Trial
from pareo.training.settings import Settings
from pareo.training.step import step_program

ALONE, AFTER = "one worker", "tasks, one after another"
INSIDE = "threads inside each step"
RATE = 0.01
CORE = 2e10  # FLOP/s, to guess how many images a turn of some seconds needs

Fit = Callable[..., TrainingResult]
ONE_NETWORK: dict[str, tuple[Fit, str]] = {
    "data, threads": (data_parallel.fit, "threads"),
    "data, processes": (data_parallel.fit, "processes"),
    "model, pipeline in threads": (model_parallel.pipeline, "threads"),
    "model, pipeline in processes": (model_parallel.pipeline, "processes"),
    "model, neurons in threads": (model_parallel.neurons, "threads"),
}
MANY = ("threads", "processes", "population")


def data_for(network: Sequential, batch: int, seconds: float) -> Dataset:
    """Whole batches that one worker trains on for about so many seconds, and some to test with.

    >>> from pareo.nn import networks
    >>> len(data_for(networks.mlp("small"), 128, 0.1).images)
    1792
    """
    step = step_program(network, batch).flops / CORE
    steps = max(4, round(seconds / step))
    if network.inputs == (1, 28, 28):
        known = load("mnist").as_float()
        count = min(steps * batch, len(known.images) // batch * batch)
        tests = min(len(known.test_images), max(batch, count // 6))
        return Dataset(
            "mnist", known.images[:count], known.labels[:count], known.test_images[:tests],
            known.test_labels[:tests], 10,
        )  # fmt: skip
    sizes = "x".join(map(str, network.inputs))
    count = steps * batch
    made = load(f"synthetic:{sizes}:{network.classes}:{count + max(batch, count // 6)}").as_float()
    images = np.concatenate([made.images, made.test_images])
    labels = np.concatenate([made.labels, made.test_labels])
    return Dataset(
        made.name, images[:count], labels[:count], images[count:], labels[count:], network.classes
    )


def ways(
    network: Sequential,
    data: Dataset,
    batch: int,
    workers: Sequence[int],
    tasks: int,
    stack: ExitStack,
) -> list[Way]:
    """Every way with every number of workers; the first is one worker alone."""
    found = [Way(ALONE, 1, _alone(network, data, batch, 1))]
    found.append(Way(AFTER, 1, _tasks(network, data, batch, 1, tasks, "serial"), networks=tasks))
    for count in workers:
        if count == 1:
            continue
        found.append(Way(INSIDE, count, _alone(network, data, batch, count)))
        for name, (fit, how) in ONE_NETWORK.items():
            found.append(Way(name, count, _outcome(fit, network, data, batch, count, how)))
        for how in MANY:
            run = (
                _processes(network, data, batch, count, tasks, stack)
                if how == "processes"
                else _tasks(network, data, batch, count, tasks, how)
            )
            found.append(Way(f"tasks, {how}", count, run, networks=tasks))
    return found


def _alone(network: Sequential, data: Dataset, batch: int, workers: int) -> Callable[[], Turn]:
    trial, train = Trial(network, rate=RATE, batch_size=batch), untested(data)
    place = Device("compiled", workers)

    def turn() -> Turn:
        result = train_one(trial, train, place, "serial", threads=lambda: workers)
        test = tested([result], lambda many: score_many(many, data, workers))
        return Turn(result.history.seconds, test, result.losses)

    return turn


def _outcome(
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


def _trials(network: Sequential, batch: int, tasks: int) -> list[Trial]:
    return [Trial(network, rate=RATE, batch_size=batch, seed=seed) for seed in range(tasks)]


def _tasks(
    network: Sequential, data: Dataset, batch: int, workers: int, tasks: int, how: str
) -> Callable[[], Turn]:
    trials, train = _trials(network, batch, tasks), untested(data)

    def turn() -> Turn:
        found, took, idle = cpu_idle(lambda: train_many(trials, train, how, workers), workers)
        test = tested(found, lambda many: score_many(many, data, workers))
        return Turn(took, test, [result.losses[-1] for result in found], 0.0, idle)

    return turn


def _processes(
    network: Sequential, data: Dataset, batch: int, workers: int, tasks: int, stack: ExitStack
) -> Callable[[], Turn]:
    trials = _trials(network, batch, tasks)
    ready: list[Processes] = []

    def turn() -> Turn:
        if not ready:  # before the clock, as threads are
            started = Processes(data, Device("compiled", workers), workers)
            ready.append(stack.enter_context(started))
        begin = time.perf_counter()
        found = ready[0].train(trials, test=False)
        took = time.perf_counter() - begin
        test = tested(found, ready[0].score)
        return Turn(took, test, [result.losses[-1] for result in found], 0.0)

    return turn
