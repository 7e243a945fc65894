"""One pool of worker threads for the whole process, and how work is split over it.

Kernels are single-threaded and release the GIL; `split` hands each worker one stretch of the work.
The stretches depend only on the amount of work and the number of threads, never on timing, so that
the same split gives the same bits.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from pareo.device import carried, cores, current

_pool: ThreadPoolExecutor | None = None
_lock = threading.Lock()
_inside = threading.local()


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
    """Run work(*piece) for every piece: the first here, the others in the pool, then wait."""
    if len(pieces) == 1:
        work(*pieces[0])
        return
    task = carried(_as_worker)
    futures = [_the_pool().submit(task, work, piece) for piece in pieces[1:]]
    try:
        _as_worker(work, pieces[0])
    finally:
        for future in futures:
            future.exception()
    for future in futures:
        future.result()


def _as_worker(work: Callable[..., object], piece: tuple[int, ...]) -> None:
    before = getattr(_inside, "worker", False)
    _inside.worker = True
    try:
        work(*piece)
    finally:
        _inside.worker = before


def _the_pool() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            # A device may name more threads than there are cores; a few idle workers cost nothing.
            _pool = ThreadPoolExecutor(max(2 * cores(), 8), thread_name_prefix="pareo")
        return _pool
