"""Where values lie in the memory between tasks; some share a place, one after the other."""

from dataclasses import dataclass

from pareo.backends.cuda.grid.plan import Plan, reads

LINE = 32  # floats: a value starts at 128 bytes


@dataclass(frozen=True)
class Life:
    """The size of a value in floats, the level that makes it, and the last one that reads it."""

    floats: int
    made: int
    read: int


def lives(plan: Plan) -> dict[int, Life]:
    """Those of the values that tasks store."""
    made = {n: task.level for task in plan.tasks for n in task.results}
    last = dict(made)
    for task in plan.tasks:
        for n in reads(plan, task):
            last[n] = max(last.get(n, 0), task.level)
    return {n: Life(plan.size(n), made[n], last[n]) for n in plan.stored}


def starts(values: dict[int, Life]) -> dict[int, int]:
    """The first float of each value; large ones are placed first.

    Blocks of a level run at the same time, so a place is free in the level after its last reader.

    >>> starts({0: Life(32, 1, 2), 1: Life(64, 2, 3), 2: Life(32, 3, 4)})
    {1: 0, 0: 64, 2: 64}
    """
    found: dict[int, int] = {}
    for n, life in sorted(values.items(), key=lambda one: -one[1].floats):
        start = 0
        taken = sorted(
            (found[other], found[other] + rounded(values[other].floats))
            for other in found
            if values[other].made <= life.read and life.made <= values[other].read
        )
        for first, end in taken:
            if start + life.floats <= first:
                break
            start = max(start, end)
        found[n] = start
    return found


def rounded(floats: int) -> int:
    """The place for so many floats, so that what follows starts at 128 bytes."""
    return -(-floats // LINE) * LINE
