"""The fourth paper's three MLPs in PyTorch."""

from collections.abc import Sequence
from typing import Any

from pareo.array import Array
from pareo.lab.contestants import Calls, Task, torch_step
from pareo.nn.torch_export import layers as torch_layers
from pareo.parallel.trials.scoring import PIECE


class TorchNetworks:
    """Networks in PyTorch; each thread of Python has its own number of threads for products."""

    def __init__(self, tasks: Sequence[Task], how: str, threads: int) -> None:
        self._torch, self._tasks, self._threads = torch_step.load(), tasks, threads
        self._torch.set_num_threads(threads)
        self._trainers = [torch_step.TorchTrainer(task, False, False) for task in tasks]
        tests = tasks[0].test_data()
        assert tests is not None
        self._tests, self._answers = (self._torch.from_numpy(array) for array in tests)

    def restart(self, number: int) -> None:
        """Return to the first weights."""
        self._trainers[number].load(self._tasks[number].parameters())

    def train(self, number: int, order: Array) -> list[Any]:
        """Train a network, a step for each row; the losses."""
        self._torch.set_num_threads(self._threads)
        return self._trainers[number].run(order)

    def test(self, number: int) -> tuple[float, float]:
        """The mean loss and the share of right answers, as pareo's own test has them."""
        torch = self._torch
        torch.set_num_threads(self._threads)
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
