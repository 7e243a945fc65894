"""A process that holds all of a GPU's memory but a limit, the same for every framework."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

from pareo.lab.experiment.worker import Worker


def holding() -> Callable[..., int]:
    """Allocates GPU memory until only so many bytes are free; returns how many are free."""
    runtime = import_module("cupy").cuda.runtime
    taken = []

    def answer(leave: int | None = None) -> int:
        free, _ = runtime.memGetInfo()
        if leave is not None and free > leave:
            taken.append(runtime.malloc(free - leave))
            free, _ = runtime.memGetInfo()
        return int(free)

    return answer


class Ballast:
    """A process that holds GPU memory; on a CPU there is none, and nothing is counted."""

    def __init__(self, worker: Worker | None, left: int) -> None:
        """`left`: the bytes of the GPU that it leaves free."""
        self._worker, self.left = worker, left

    @classmethod
    @contextmanager
    def leaving(cls, most: int | None, on_gpu: bool) -> Iterator["Ballast"]:
        """A ballast that leaves this many bytes of the GPU free; None is all of them."""
        if not on_gpu:
            yield cls(None, 0)
            return
        with Worker(holding) as worker:
            yield cls(worker, worker.ask(most))

    @contextmanager
    def counting(self) -> Iterator[Callable[[], int]]:
        """A function: bytes that other processes, with the driver, have allocated since."""
        worker = self._worker
        if worker is None:
            yield lambda: 0
            return
        free = worker.ask()
        yield lambda: free - worker.ask()
