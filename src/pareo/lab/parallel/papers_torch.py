"""The fourth paper's three MLPs in PyTorch, each strategy in processes of its own."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from pareo.data import Dataset
from pareo.lab.contestants import Calls, Task, torch_step
from pareo.lab.experiment.worker import Worker
from pareo.lab.papers.costa_banevicius import BATCH, RATE, SIZES
from pareo.lab.parallel.engine import Strategy, Turn
from pareo.lab.parallel.names import ALL_CORES, PROCESSES, SERIAL, THREADS
from pareo.nn import networks
from pareo.nn.torch_export import layers as torch_layers
from pareo.parallel.group.worker_group import run_threads
from pareo.parallel.trials.scoring import PIECE
from pareo.training.fit import shuffled


class TorchNetworks:
    """Some of the networks in PyTorch: trained and tested whenever they are called."""

    def __init__(self, sizes: Sequence[str], images: int) -> None:
        self._torch = torch_step.load()
        self._tasks = [Task(networks.mlp(size), BATCH, rate=RATE) for size in sizes]
        self._trainers = [torch_step.TorchTrainer(task, False, False) for task in self._tasks]
        steps = images // BATCH
        order = np.ascontiguousarray(shuffled(images, 0, 0)[: steps * BATCH])
        self._order = order.reshape(steps, BATCH)
        tests = self._tasks[0].test_data()
        assert tests is not None
        self._tests, self._answers = (self._torch.from_numpy(array) for array in tests)

    def __call__(self, how: str, threads: int) -> tuple[float, float, list[float]]:
        """Seconds of training and of testing, and the mean loss of each network.

        how: "threads" for one thread of Python for each network, "serial" for one after another.
        """
        self._torch.set_num_threads(threads)
        for task, trainer in zip(self._tasks, self._trainers, strict=True):
            trainer.load(task.parameters())
        losses = [0.0] * len(self._tasks)

        def train(number: int) -> None:
            self._torch.set_num_threads(threads)  # each thread of Python has its own number
            found = self._trainers[number].run(self._order)
            losses[number] = float(np.mean([float(loss) for loss in found]))

        begin = time.perf_counter()
        self._for_each(how, train)
        between = time.perf_counter()
        self._for_each(how, lambda number: self._test(number, threads))
        return between - begin, time.perf_counter() - between, losses

    def _for_each(self, how: str, work: Callable[[int], Any]) -> None:
        parts = [partial(work, number) for number in range(len(self._tasks))]
        if how == "threads":
            run_threads(parts, lambda: None)
            return
        for part in parts:
            part()

    def _test(self, number: int, threads: int) -> tuple[float, float]:
        """The mean loss and the share of right answers, as pareo's own test has them."""
        torch = self._torch
        torch.set_num_threads(threads)
        trainer, network = self._trainers[number], self._tasks[number].network
        calls = Calls(torch_layers.layer, torch_layers.joins())
        with torch.no_grad():
            logits = torch.cat([
                network.run(trainer._leaves, piece, calls)
                for piece in self._tests.split(PIECE)
            ])  # fmt: skip
            loss = torch.nn.functional.cross_entropy(logits, self._answers)
            right = (logits.argmax(1) == self._answers).float().mean()
        return float(loss), float(right)


def torch_strategies(data: Dataset, cores: int, stack: ExitStack) -> list[Strategy]:
    """PyTorch's strategies; their processes live until the stack is closed."""
    started: dict[bool, list[Worker]] = {}
    images = len(data.images)

    def workers(apart: bool) -> list[Worker]:
        """One process for all networks, or one for each of them."""
        if apart not in started:
            groups = [(size,) for size in SIZES] if apart else [SIZES]
            started[apart] = [
                stack.enter_context(Worker(TorchNetworks, group, images)) for group in groups
            ]
        return started[apart]

    def in_one_process(how: str, threads: int) -> Turn:
        train, test, losses = workers(apart=False)[0].ask(how, threads)
        return Turn(train, test, losses)

    def in_processes() -> Turn:
        own = workers(apart=True)
        for worker in own:
            worker.put("serial", 1)
        answers = [worker.get() for worker in own]
        train, test = (max(answer[place] for answer in answers) for place in (0, 1))
        return Turn(train, test, [answer[2][0] for answer in answers])

    return [
        Strategy(SERIAL, 1, partial(in_one_process, "serial", 1), "torch", 3),
        Strategy(ALL_CORES, cores, partial(in_one_process, "serial", cores), "torch", 3),
        Strategy(THREADS, 3, partial(in_one_process, "threads", 1), "torch", 3),
        Strategy(PROCESSES, 3, in_processes, "torch", 3),
    ]
