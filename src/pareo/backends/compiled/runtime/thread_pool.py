"""Worker threads for the whole process, and how work is split over them.

Kernels are single-threaded and release the GIL; `split` gives each worker one range of the items.
The ranges depend only on the amount of work and the number of threads, never on timing, so that the
same split gives the same bits.
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

from pareo.backends.compiled.runtime import recording, thread_handoff
from pareo.device import current


class _Inside(threading.local):
    worker = False  # whether this thread is working on a part of some work


_inside = _Inside()


class Worker(threading.Thread):
    """A thread that takes one task after another (see `thread_handoff`)."""

    def __init__(self) -> None:
        super().__init__(name="pareo", daemon=True)
        self._words, self._mailbox = thread_handoff.new_mailbox()
        self._awake = threading.Lock()
        self._awake.acquire()
        self._given = 0
        self._task: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        _inside.worker = True
        done = 0
        while True:
            if thread_handoff.next_task(self._mailbox, done) == thread_handoff.SLEEP:
                self._awake.acquire()
                done = 0
                continue
            if self._task is None:
                return
            try:
                self._task()
            except BaseException as error:  # raised again by `done`
                self._error = error
            done = self._given

    def give(self, task: Callable[[], object] | None) -> None:
        """Start a task; None ends the thread."""
        self._offer(task, 0)

    def help(self, job: int, alive: object) -> None:
        """Help with a job (see `thread_handoff`); `alive` keeps its memory alive."""
        self._offer(alive, job)

    def _offer(self, task: Any, job: int) -> None:
        self._task = task
        self._given += 1
        if thread_handoff.offer(self._mailbox, self._given, job):
            self._awake.release()

    def done(self) -> bool:
        """Wait for the task and raise its error; False if it had not begun."""
        begun = thread_handoff.finish(self._mailbox, self._given)
        error, self._error, self._task = self._error, None, None
        if error is not None:
            raise error
        return bool(begun)


LEAST_FLOPS = 1 << 19  # of products: five microseconds, as long as handing work over takes
APART = 32  # elements of float32 in two cache lines
_idle: deque[Worker] = deque()
if hasattr(os, "register_at_fork"):  # a child process has none of its parent's threads
    os.register_at_fork(after_in_child=_idle.clear)


@atexit.register
def _dismiss() -> None:
    """End idle workers before the interpreter exits."""
    while _idle:
        worker = _idle.pop()
        worker.give(None)
        worker.join(timeout=1)


def taken() -> Worker:
    """A worker that is idle, or a new one."""
    try:
        return _idle.pop()
    except IndexError:
        return Worker()


def give_back(worker: Worker) -> None:
    """Return a worker whose task is done."""
    _idle.append(worker)


def workers() -> int:
    """How many threads a kernel may use here: those of the device, or one inside a worker."""
    return 1 if _inside.worker else current().threads


def apart(elements: int) -> int:
    """A number of elements rounded up so that the arrays of two workers share no cache line.

    Two lines, because processors fetch pairs of them. Sharing one made pooling ten times slower.

    >>> apart(13)
    32
    """
    return -(-elements // APART) * APART


def stretches(count: int, least: int = 1) -> list[tuple[int, int]]:
    """Ranges of `count` items, one for each thread, each of at least `least` items.

    >>> stretches(10, least=100)
    [(0, 10)]
    """
    number = min(workers(), count // max(1, least)) if count > least else 1
    if number <= 1:
        return [(0, count)]
    edges = [count * part // number for part in range(number + 1)]
    return list(pairwise(edges))


def least_items(count: int, flops: int) -> int:
    """How many of `count` items are worth a thread, where all of them take so many FLOPs.

    >>> least_items(10, 10 * LEAST_FLOPS), least_items(10, LEAST_FLOPS // 2), least_items(10, 0)
    (1, 20, 10)
    """
    return max(1, -(-count * LEAST_FLOPS // flops)) if flops else max(1, count)


def split(work: Callable[[int, int], object], count: int, least: int = 1) -> None:
    """Run work(start, stop) for all of `count` items, each thread on its own range."""
    _run_all(work, stretches(count, least))


def split_numbered(work: Callable[[int, int, int], object], count: int, least: int = 1) -> int:
    """Run work(part, start, stop) likewise; return the number of parts.

    The number of a part lets each thread use work arrays of its own.
    """
    pieces = [(part, *piece) for part, piece in enumerate(stretches(count, least))]
    _run_all(work, pieces)
    return len(pieces)


def _run_all(work: Callable[..., object], pieces: Sequence[tuple[int, ...]]) -> None:
    """Run work(*piece) for every piece: the first in this thread, the others in workers.

    A piece that no worker has begun when the first is done runs in this thread too.
    """
    if len(pieces) == 1:
        work(*pieces[0])
        return
    active = recording.active()
    if active is not None:
        active.split([partial(_as_worker, work, piece) for piece in pieces])
        return
    given: list[tuple[Worker, tuple[int, ...]]] = []
    errors: list[BaseException] = []
    try:
        for piece in pieces[1:]:
            worker = taken()
            given.append((worker, piece))
            worker.give(partial(copy_context().run, work, *piece))
        _as_worker(work, pieces[0])
    except BaseException as error:  # raised when all workers have stopped
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
