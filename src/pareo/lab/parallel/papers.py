"""The fourth paper's three MLPs, in its two strategies and in others.

Training and testing are timed apart, as in the paper's Table 2. Processes are started before the
clock; everything else that a user waits for is timed.
"""

import threading
from contextlib import ExitStack
from functools import partial

from pareo.data import Dataset, load
from pareo.device import Device
from pareo.lab.papers.costa_banevicius import BATCH, trials
from pareo.lab.parallel.datasets import whole_batches
from pareo.lab.parallel.engine import Strategy
from pareo.lab.parallel.names import (
    ALL_CORES,
    PROCESSES,
    SCHEDULED_PROCESSES,
    SCHEDULED_THREADS,
    SERIAL,
    THREADS,
)
from pareo.lab.parallel.tasks import by_train_many, in_processes, in_threads
from pareo.parallel.group.worker_group import Abandoned, run_threads
from pareo.parallel.trials.schedule import predicted_work
from pareo.parallel.trials.train_trial import train_one, untested
from pareo.parallel.trials.trial import Result, Trial


def papers_data(images: int) -> Dataset:
    """The first images of MNIST, as many as make whole batches, and all of its test images."""
    return whole_batches(load("mnist").as_float(), BATCH, images)


def flops(data: Dataset) -> float:
    """Floating-point operations of training all three once."""
    return sum(predicted_work(trial, untested(data)) for trial in trials())


def pareo_strategies(data: Dataset, cores: int, stack: ExitStack) -> list[Strategy]:
    """pareo's strategies; processes live until the stack is closed."""
    three = trials()
    each = partial(_a_thread_each, three, untested(data))
    found = [
        (SERIAL, 1, by_train_many(three, data, "serial", 1)),
        (ALL_CORES, cores, by_train_many(three, data, "serial", cores)),
        (THREADS, 3, in_threads(each, data, 3, min(3, cores))),
        (PROCESSES, 3, in_processes(three, data, 3, 1, stack)),
        (SCHEDULED_THREADS, cores, by_train_many(three, data, "threads", cores)),
        (SCHEDULED_PROCESSES, cores, in_processes(three, data, cores, cores, stack)),
    ]
    return [Strategy(name, workers, run, networks=3) for name, workers, run in found]


def _a_thread_each(three: list[Trial], data: Dataset) -> list[Result]:
    """The paper's strategy: as many threads as networks, whatever the machine has."""
    found: dict[int, Result] = {}
    one = Device("compiled", 1)
    stopped = threading.Event()

    def share() -> int:
        """Called between steps, where training can be ended."""
        if stopped.is_set():
            raise Abandoned
        return 1

    def train(number: int) -> None:
        found[number] = train_one(three[number], data, one, "threads", threads=share)

    run_threads([partial(train, number) for number in range(len(three))], stopped.set)
    return [found[number] for number in range(len(three))]
