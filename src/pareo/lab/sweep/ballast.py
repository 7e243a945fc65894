"""All of a GPU's memory but some: the same wall for every framework."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

from pareo.lab.experiment.worker import Worker


def holding() -> Callable[..., int]:
    """Takes the card's memory until so many bytes are free, and tells how many are free."""
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
    """A process that holds a card's memory; on a CPU there is none, and nothing is counted."""

    def __init__(self, worker: Worker | None, left: int) -> None:
        """`left`: the bytes of the card that are free beside it."""
        self._worker, self.left = worker, left

    @classmethod
    @contextmanager
    def leaving(cls, most: int | None, on_card: bool) -> Iterator["Ballast"]:
        """A ballast that leaves so many bytes of the card free; None is all of them."""
        if not on_card:
            yield cls(None, 0)
            return
        with Worker(holding) as worker:
            yield cls(worker, worker.ask(most))

    @contextmanager
    def counting(self) -> Iterator[Callable[[], int]]:
        """How many bytes of the card were taken by others since, the driver's among them."""
        worker = self._worker
        if worker is None:
            yield lambda: 0
            return
        free = worker.ask()
        yield lambda: free - worker.ask()
