"""Worker threads for the whole process, and how work is split over them.

Kernels are single-threaded and release the GIL; `split` hands each worker one stretch of the work.
The stretches depend only on the amount of work and the number of threads, never on timing, so that
the same split gives the same bits.
"""

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from itertools import pairwise
from typing import Any

from pareo.device import carried, current


class _Inside(threading.local):
    worker = False  # whether this thread does a piece of some work


_inside = _Inside()


class Worker(threading.Thread):
    """A thread that is given one task after another (`compiled/handover.py`)."""

    def __init__(self) -> None:
        super().__init__(name="pareo", daemon=True)
        from pareo.backends.compiled.runtime import (
            thread_handoff as handover,  # Numba, which takes a second to import
        )

        self._handover = handover
        self._words, self._box = handover.new_box()
        self._awake = threading.Lock()
        self._awake.acquire()
        self._given = 0
        self._task: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        _inside.worker = True
        handover, done = self._handover, 0
        while True:
            if handover.next_thing(self._box, done) == handover.SLEEP:
                self._awake.acquire()
                done = 0
                continue
            if self._task is None:
                return
            try:
                self._task()
            except BaseException as error:  # whoever gave the work is told
                self._error = error
            done = self._given

    def give(self, task: Callable[[], object] | None) -> None:
        """Ask for a task to be done; for None the thread ends."""
        self._offer(task, 0)

    def help(self, job: int, alive: object) -> None:
        """Ask for help with a job, all that it works on being kept alive meanwhile."""
        self._offer(alive, job)

    def _offer(self, task: Any, job: int) -> None:
        self._task = task
        self._given += 1
        if self._handover.offer(self._box, self._given, job):
            self._awake.release()

    def done(self) -> bool:
        """Wait until the task is done, and raise its error; False where it was not even begun."""
        begun = self._handover.finish(self._box, self._given)
        error, self._error, self._task = self._error, None, None
        if error is not None:
            raise error
        return bool(begun)


_idle: deque[Worker] = deque()
if hasattr(os, "register_at_fork"):  # threads do not live on in a child
    os.register_at_fork(after_in_child=_idle.clear)


@atexit.register
def _dismiss() -> None:
    """End idle workers before the interpreter goes."""
    while _idle:
        worker = _idle.pop()
        worker.give(None)
        worker.join(timeout=1)


def taken() -> Worker:
    """A worker that nobody else has."""
    try:
        return _idle.pop()
    except IndexError:
        return Worker()


def give_back(worker: Worker) -> None:
    """Let others have a worker that is done."""
    _idle.append(worker)


def workers() -> int:
    """How many threads the work at hand may use: those of the device, or one inside a worker."""
    return 1 if _inside.worker else current().threads


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
    # Daemons: where Ctrl-C interrupts this thread, a process that ends does not wait for them.
    others = [
        threading.Thread(target=carried(work), args=(n,), daemon=True) for n in range(1, count)
    ]
    for thread in others:
        thread.start()
    work(0)
    for thread in others:
        thread.join()


def _run_all(work: Callable[..., object], pieces: Sequence[tuple[int, ...]]) -> None:
    """Run work(*piece) for every piece: the first here, the others by workers, then wait.

    A piece that no worker has begun by the time the first is done is run here too.
    """
    if len(pieces) == 1:
        work(*pieces[0])
        return
    given: list[tuple[Worker, tuple[int, ...]]] = []
    errors: list[BaseException] = []
    try:
        for piece in pieces[1:]:
            worker = taken()
            given.append((worker, piece))
            worker.give(partial(copy_context().run, work, *piece))
        _as_worker(work, pieces[0])
    except BaseException as error:  # raised when everyone has stopped
        errors.append(error)
    for worker, piece in given:
        try:
            if not worker.done():
                _as_worker(work, piece)
        except BaseException as error:
            errors.append(error)
        give_back(worker)
    if errors:
        raise errors[0]


def _as_worker(work: Callable[..., object], piece: tuple[int, ...]) -> None:
    before = _inside.worker
    _inside.worker = True
    try:
        work(*piece)
    finally:
        _inside.worker = before
