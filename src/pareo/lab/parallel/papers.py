"""The fourth paper's three MLPs in its two ways and in ours, beside PyTorch, in one race.

Training and testing are timed apart, as in the paper's Table 2. Processes are started before the
clock; everything else that a user waits for is in it.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from pareo.data import Dataset, load
from pareo.device import Device
from pareo.lab.contestants import Task, forward, torch_step
from pareo.lab.experiment.worker import Worker
from pareo.lab.papers.costa_banevicius import BATCH, RATE, SIZES, trials
from pareo.lab.parallel.engine import Turn, Way, cpu_idle, tested
from pareo.nn import networks
from pareo.parallel.group.errors import Aborted
from pareo.parallel.group.worker_group import run_threads
from pareo.parallel.trials.many import train_many
from pareo.parallel.trials.processes import Processes
from pareo.parallel.trials.schedule import predicted_work
from pareo.parallel.trials.scoring import PIECE, score_many
from pareo.parallel.trials.train_trial import train_one, untested
from pareo.parallel.trials.trial import Result, Trial
from pareo.training.fit import shuffled

SERIAL, ALL, THREADS, PROCESSES = (
    "one after another, 1 thread each",
    "one after another, all cores each",
    "a thread for each network",
    "a process for each network",
)
HELPED, HELPED_PROCESSES = "threads, scheduled", "processes, scheduled"


def papers_data(images: int) -> Dataset:
    """The first images of MNIST, as many as make whole batches, and all of its test images."""
    data = load("mnist").as_float()
    count = max(BATCH, min(images, len(data.images)) // BATCH * BATCH)
    return Dataset(
        "mnist", data.images[:count], data.labels[:count], data.test_images, data.test_labels, 10
    )


def flops(data: Dataset) -> float:
    """Floating-point operations of training all three once."""
    return sum(predicted_work(trial, untested(data)) for trial in trials())


def pareo_ways(data: Dataset, cores: int, stack: ExitStack) -> list[Way]:
    """pareo's ways; processes live until the stack is closed."""
    three, train = trials(), untested(data)

    def threads(workers: int, run: Callable[[], list[Result]]) -> Callable[[], Turn]:
        def turn() -> Turn:
            found, took, idle = cpu_idle(run, min(workers, cores))
            test = tested(found, lambda many: score_many(many, data, workers))
            return Turn(took, test, _losses(found), 0.0, idle)

        return turn

    def processes(count: int, of: int) -> Callable[[], Turn]:
        ready: list[Processes] = []

        def turn() -> Turn:
            if not ready:
                started = Processes(data, Device("compiled", of), count)
                ready.append(stack.enter_context(started))
            begin = time.perf_counter()
            found = ready[0].train(three, test=False)
            took = time.perf_counter() - begin
            return Turn(took, tested(found, ready[0].score), _losses(found))

        return turn

    def serial(workers: int) -> Callable[[], Turn]:
        return threads(workers, lambda: train_many(three, train, "serial", workers))

    helped = threads(cores, lambda: train_many(three, train, "threads", cores))
    return [
        Way(SERIAL, 1, serial(1), networks=3),
        Way(ALL, cores, serial(cores), networks=3),
        Way(THREADS, 3, threads(3, lambda: _a_thread_each(three, train)), networks=3),
        Way(PROCESSES, 3, processes(3, 1), networks=3),
        Way(HELPED, cores, helped, networks=3),
        Way(HELPED_PROCESSES, cores, processes(cores, cores), networks=3),
    ]


def _a_thread_each(three: list[Trial], data: Dataset) -> list[Result]:
    """The paper's way: as many threads as networks, whatever the machine has."""
    found: dict[int, Result] = {}
    one = Device("compiled", 1)
    stopped = threading.Event()

    def share() -> int:
        """Asked between steps, which is where training can be ended."""
        if stopped.is_set():
            raise Aborted
        return 1

    def train(number: int) -> None:
        found[number] = train_one(three[number], data, one, "threads", threads=share)

    _at_once(train, len(three), stopped.set)
    return [found[number] for number in range(len(three))]


def _at_once(
    work: Callable[[int], Any], count: int, stop: Callable[[], Any] = lambda: None
) -> None:
    run_threads([partial(work, number) for number in range(count)], stop)


def _losses(results: Sequence[Result]) -> list[float]:
    return [result.losses[-1] for result in results]


class TorchWays:
    """Some of the networks in PyTorch, in a process of its own: trained and tested as asked."""

    def __init__(self, sizes: Sequence[str], images: int) -> None:
        self._torch = torch_step.load()
        self._tasks = [Task(networks.mlp(size), BATCH, rate=RATE) for size in sizes]
        self._trainers = [torch_step.TorchTrainer(task, False, False) for task in self._tasks]
        steps = images // BATCH
        self._order = np.ascontiguousarray(shuffled(images, 0, 0)[: steps * BATCH]).reshape(
            steps, BATCH
        )
        tests = self._tasks[0].test_data()
        assert tests is not None
        self._tests, self._answers = (self._torch.from_numpy(array) for array in tests)

    def __call__(self, way: str, threads: int) -> tuple[float, float, list[float]]:
        """Seconds of training and of testing, and the mean loss of each network."""
        self._torch.set_num_threads(threads)
        for task, trainer in zip(self._tasks, self._trainers, strict=True):
            trainer.load(task.parameters())
        losses = [0.0] * len(self._tasks)

        def train(number: int) -> None:
            self._torch.set_num_threads(threads)  # each thread of Python has its own number
            found = self._trainers[number].run(self._order)
            losses[number] = float(np.mean([float(loss) for loss in found]))

        begin = time.perf_counter()
        self._do(way, train)
        between = time.perf_counter()
        self._do(way, lambda number: self._test(number, threads))
        return between - begin, time.perf_counter() - between, losses

    def _do(self, way: str, work: Callable[[int], Any]) -> None:
        if way == "threads":
            _at_once(work, len(self._tasks))
            return
        for number in range(len(self._tasks)):
            work(number)

    def _test(self, number: int, threads: int) -> tuple[float, float]:
        """The mean loss and the share of right answers, as pareo's own test has them."""
        torch = self._torch
        torch.set_num_threads(threads)
        trainer, network = self._trainers[number], self._tasks[number].network
        with torch.no_grad():
            logits = torch.cat([
                forward(network, trainer._leaves, piece, torch_step.layer, torch.cat)
                for piece in self._tests.split(PIECE)
            ])  # fmt: skip
            loss = torch.nn.functional.cross_entropy(logits, self._answers)
            right = (logits.argmax(1) == self._answers).float().mean()
        return float(loss), float(right)


def torch_ways(data: Dataset, cores: int, stack: ExitStack) -> list[Way]:
    """PyTorch's ways, each in processes that live until the stack is closed."""
    started: dict[str, list[Worker]] = {}
    images = len(data.images)

    def workers(kind: str) -> list[Worker]:
        if kind not in started:
            groups = [SIZES] if kind == "one" else [(size,) for size in SIZES]
            started[kind] = [
                stack.enter_context(Worker(TorchWays, group, images)) for group in groups
            ]
        return started[kind]

    def inside(way: str, threads: int) -> Callable[[], Turn]:
        def turn() -> Turn:
            train, test, losses = workers("one")[0].ask(way, threads)
            return Turn(train, test, losses)

        return turn

    def processes() -> Turn:
        own = workers("each")
        for worker in own:
            worker.put("serial", 1)
        answers = [worker.get() for worker in own]
        train, test = (max(answer[place] for answer in answers) for place in (0, 1))
        return Turn(train, test, [answer[2][0] for answer in answers])

    return [
        Way(SERIAL, 1, inside("serial", 1), "torch", 3),
        Way(ALL, cores, inside("serial", cores), "torch", 3),
        Way(THREADS, 3, inside("threads", 1), "torch", 3),
        Way(PROCESSES, 3, processes, "torch", 3),
    ]
