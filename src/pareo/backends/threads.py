"""Threads that run at the same time, in the device scopes of the thread that starts them."""

import threading
from collections.abc import Callable

from pareo.device import carried


def run_concurrently(count: int, work: Callable[[int], object]) -> None:
    """Run work(0) to work(count - 1) at the same time, for workers that wait for each other.

    Each but the first has a thread of its own; tasks of a pool might wait in its queue instead.
    """
    # Daemons: if Ctrl-C interrupts this thread, the process does not wait for them when it ends.
    others = [
        threading.Thread(target=carried(work), args=(n,), daemon=True) for n in range(1, count)
    ]
    for thread in others:
        thread.start()
    work(0)
    for thread in others:
        thread.join()
