"""Worker threads for the whole process, and how work is split over them.

Kernels are single-threaded and release the GIL; `split` hands each worker one stretch of the work.
The stretches depend only on the amount of work and the number of threads, never on timing, so that
the same split gives the same bits.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise

from pareo.device import carried, current

_inside = threading.local()


class _Worker(threading.Thread):
    """A thread that waits for one piece of work after another.

    Two locks hand over: a split through them costs 15 microseconds, through an executor 50.
    """

    def __init__(self) -> None:
        super().__init__(name="pareo", daemon=True)
        self._given, self._done = threading.Lock(), threading.Lock()
        self._given.acquire()
        self._done.acquire()
        self._task: Callable[[], object] | None = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        while True:
            self._given.acquire()
            try:
                if self._task is not None:
                    self._task()
            except BaseException as error:  # whoever gave the work is told
                self._error = error
            finally:
                self._task = None
                self._done.release()

    def give(self, task: Callable[[], object]) -> None:
        self._task = task
        self._given.release()

    def wait(self) -> BaseException | None:
        """Wait until the work is done; the error that ended it."""
        self._done.acquire()
        error, self._error = self._error, None
        return error


_idle: deque[_Worker] = deque()
if hasattr(os, "register_at_fork"):  # threads do not live on in a child
    os.register_at_fork(after_in_child=_idle.clear)


def _taken() -> _Worker:
    try:
        return _idle.pop()
    except IndexError:
        return _Worker()


def workers() -> int:
    """How many threads the work at hand may use: those of the device, or one inside a worker."""
    return 1 if getattr(_inside, "worker", False) else current().threads


def stretches(count: int, least: int = 1) -> list[tuple[int, int]]:
    """`count` items as one range for each thread, none of fewer than `least` items.

    >>> stretches(10, least=100)
    [(0, 10)]
    """
    number = max(1, min(workers(), count // max(1, least)))
    edges = [count * part // number for part in range(number + 1)]
    return list(pairwise(edges))


def split(work: Callable[[int, int], object], count: int, least: int = 1) -> None:
    """Run work(start, stop) for all of `count` items, each thread on its own stretch."""
    _run_all(work, stretches(count, least))


def split_numbered(work: Callable[[int, int, int], object], count: int, least: int = 1) -> int:
    """Run work(part, start, stop) likewise, for work that keeps room for each part; the parts."""
    pieces = [(part, *piece) for part, piece in enumerate(stretches(count, least))]
    _run_all(work, pieces)
    return len(pieces)


def together(count: int, work: Callable[[int], object]) -> None:
    """Run work(0) to work(count - 1) at the same time, for workers that wait for each other.

    They are threads of their own, not tasks that a pool might keep in its queue.
    """
    others = [threading.Thread(target=carried(work), args=(n,)) for n in range(1, count)]
    for thread in others:
        thread.start()
    work(0)
    for thread in others:
        thread.join()


def _run_all(work: Callable[..., object], pieces: Sequence[tuple[int, ...]]) -> None:
    """Run work(*piece) for every piece: the first here, the others by workers, then wait."""
    if len(pieces) == 1:
        work(*pieces[0])
        return
    task = carried(_as_worker)
    busy = []
    errors: list[BaseException | None] = []
    try:
        for piece in pieces[1:]:
            worker = _taken()
            worker.give(lambda piece=piece: task(work, piece))  # type: ignore[misc]
            busy.append(worker)
        _as_worker(work, pieces[0])
    finally:
        for worker in busy:
            errors.append(worker.wait())
            _idle.append(worker)
    for error in errors:
        if error is not None:
            raise error


def _as_worker(work: Callable[..., object], piece: tuple[int, ...]) -> None:
    before = getattr(_inside, "worker", False)
    _inside.worker = True
    try:
        work(*piece)
    finally:
        _inside.worker = before
