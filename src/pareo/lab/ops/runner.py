"""A contestant in a process of its own: its results once, then the seconds of a call.

Hot: the same arrays in every call. Cold: several sets of arrays in turn, too many for any cache.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pareo.lab.machine.places import GPU
from pareo.lab.ops.counters import cupti, perf_event
from pareo.lab.ops.peers import Missing, Peer, made, place_of
from pareo.lab.ops.peers.pareo_peer import Pareo
from pareo.lab.ops.work import Work

SHOWN = 4096  # elements of each result that are compared
# Seconds of a sample: launching on a GPU and waiting for it takes up to 50 us, half a percent.
LEAST = 0.01
# Seconds of calls before a sample on a CPU whose threads have been idle: after a pause, two of them
# were seen to share one core for up to 55 ms, until the system moved one.
AWAKE = 0.1
REST = 0.02


class Runner:
    """Answers questions about one piece of work after another: `prepare` it, then `run`."""

    def __init__(self, contestant: str, threads: int) -> None:
        self._peer: Peer = made(contestant, threads)
        self._awake = 0.0 if place_of(contestant) == GPU or threads == 1 else AWAKE
        self._calls: list[Callable[[], Any]] = []
        self._counts: dict[bool, int] = {}  # calls in a sample, hot and cold
        self._worked = 0.0  # when the last sample ended

    def __call__(self, question: str, *details: Any) -> Any:
        """The answer to a question, which is the name of a method."""
        return getattr(self, question)(*details)

    def prepare(self, work: Work, sets: int) -> list[Any] | str:
        """Make sets of arrays, and compute once; part of the results, or why there are none."""
        self._calls, self._counts = [], {}
        arrays = work.inputs()
        try:
            for number in range(sets):
                given = arrays if number == 0 else [array.copy() for array in arrays]
                self._calls.append(self._peer.call(work, given))
        except Missing as missing:
            return str(missing)
        for call in self._calls[1:]:
            call()  # compiles what has to be compiled
        results = self._calls[0]()
        self._peer.wait()
        several = isinstance(results, (tuple, list))
        return [shown(self._peer.host(r)) for r in (results if several else [results])]

    def run(self, cold: bool) -> float:
        """Seconds of a call: the mean of as many calls as take long enough to be timed."""
        calls = self._calls if cold else self._calls[:1]
        count = self._counts.get(cold, 1)
        rested = time.perf_counter() - self._worked > REST
        spent = self._timed(calls, 1)  # fills the caches, which others have used meanwhile
        while rested and spent < self._awake:
            spent += self._timed(calls, 1)
        took = self._timed(calls, count)
        while took < LEAST:
            count = max(count + 1, int(count * min(100, 1.3 * LEAST / max(took, 1e-7))))
            took = self._timed(calls, count)
        self._counts[cold] = count
        self._worked = time.perf_counter()
        return took / count

    def count(self, rung: str) -> dict[str, Any]:
        """What hardware counters of this process say of one call."""

        def once() -> None:
            self._calls[0]()
            self._peer.wait()

        once()
        if rung == "CUPTI":
            return cupti.counted(once)
        return {"rung": rung, **perf_event.counted(once)}

    def release(self) -> None:
        """Free the arrays."""
        self._calls = []

    def _timed(self, calls: list[Callable[[], Any]], count: int) -> float:
        """Seconds of `count` calls, on each set of arrays in turn."""
        start = time.perf_counter()
        for number in range(count):
            calls[number % len(calls)]()
        self._peer.wait()
        return time.perf_counter() - start


class Reference:
    """The same in float64 by NumPy, which all results are compared with."""

    def __init__(self, threads: int) -> None:
        self._exact = Pareo("vectorized", threads, "float64")

    def __call__(self, work: Work) -> list[Any]:
        """Part of the results; only that part is computed if the operator is elementwise."""
        if work.pointwise:
            operands = [shown(array).astype(np.float64) for array in work.inputs()]
            return [work.forward(operands)]
        return [shown(result) for result in self._exact.call(work, work.inputs("float64"))()]


def shown(result: Any) -> Any:
    """Elements from all over a result, the last one included.

    >>> len(shown(np.ones((1000, 1000)))), shown(np.arange(3.0))
    (4096, array([0., 1., 2.]))
    """
    flat = result.reshape(-1)
    if flat.size <= SHOWN:
        return np.array(flat)
    return flat[np.linspace(0, flat.size - 1, SHOWN).astype(np.int64)]


# A float32 sum of up to 10^5 products keeps five digits; a wrong formula keeps none.
TOLERANCE = 1e-5


def difference(found: list[Any], exact: list[Any]) -> tuple[float, str]:
    """The relative error of results, and a sentence if it is too large.

    >>> difference([np.ones(2)], [np.array([1.0, 2.0])])
    (0.447..., 'result 0 differs by 0.45')
    """
    if len(found) != len(exact):
        return float("inf"), f"{len(found)} results, not {len(exact)}"
    worst = 0.0
    for number, (mine, right) in enumerate(zip(found, exact, strict=True)):
        if mine.shape != right.shape:
            return float("inf"), f"result {number} has {mine.size} elements, not {right.size}"
        length = float(np.linalg.norm(right.astype(np.float64)))
        error = float(np.linalg.norm(mine.astype(np.float64) - right)) / (length or 1.0)
        if not error <= TOLERANCE:
            return error, f"result {number} differs by {error:.2g}"
        worst = max(worst, error)
    return worst, ""
