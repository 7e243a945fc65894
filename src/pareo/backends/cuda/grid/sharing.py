"""How the blocks of a kernel share the tasks of a level."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

GROWTH = 1.06  # from one duration that is tried to the next


@dataclass(frozen=True)
class Work:
    """One way to compute a task.

    write:  writes its code.
    cycles: what a tile is expected to take.
    room:   floats of shared memory that a tile needs, beyond one or two for each thread.
    """

    write: Callable[[], str]
    tiles: int
    cycles: float
    room: int = 0


Options = Sequence[Work]  # ways to compute one task


@dataclass(frozen=True)
class Level:
    """The chosen way of each task, and how many blocks compute it; 0 if all blocks share them all.

    cycles: what the level is expected to take.
    """

    works: Sequence[Work]
    blocks: Sequence[int]
    cycles: float


def shared(tasks: Sequence[Options], blocks: int) -> Level:
    """The tasks of a level, shared in the way that is expected to take the least time.

    Blocks of their own for each task are better where every block then has one tile: it reads the
    code of one task only, and nobody waits for a block that has two.

    >>> long, short = Work(str, 100, 900), [Work(str, 200, 300), Work(str, 20, 800)]
    >>> shared([[long], short], 132).blocks
    [100, 20]
    >>> shared([[long], short], 132).cycles
    900
    """
    mixed = _mixed(tasks, blocks)
    apart = _apart(tasks, blocks, mixed.cycles)
    return apart or mixed


def _mixed(tasks: Sequence[Options], blocks: int) -> Level:
    """Every block takes tiles of all tasks in turn."""
    works = [min(task, key=lambda work: -(-work.tiles // blocks) * work.cycles) for task in tasks]
    works.sort(key=lambda work: -work.cycles)
    busy = sum(work.tiles * work.cycles for work in works) / blocks
    longest = max((work.cycles for work in works), default=0)
    more = longest / 2 if sum(work.tiles for work in works) > blocks else 0
    return Level(works, [], max(busy + more, longest))


def _apart(tasks: Sequence[Options], blocks: int, most: float) -> Level | None:
    """Each task has blocks of its own; None if that takes longer than `most`."""
    if len(tasks) > blocks or not tasks:
        return None
    time = max(min(work.cycles for work in task) for task in tasks)
    while time <= most:
        chosen = [_fewest(task, time) for task in tasks]
        if sum(count for _, count in chosen) <= blocks:
            chosen = _with_all(tasks, chosen, blocks)
            works, counts = [work for work, _ in chosen], [count for _, count in chosen]
            taken = max(-(-w.tiles // n) * w.cycles for w, n in chosen)
            return Level(works, counts, taken)
        time *= GROWTH
    return None


def _fewest(task: Options, time: float) -> tuple[Work, int]:
    """The way that needs the fewest blocks to be ready by then, and how many."""
    ways = [
        (work, -(-work.tiles // int(time // work.cycles))) for work in task if work.cycles <= time
    ]
    return min(ways, key=lambda way: (way[1], way[0].cycles))


def _with_all(
    tasks: Sequence[Options], chosen: Sequence[tuple[Work, int]], blocks: int
) -> list[tuple[Work, int]]:
    """The same tasks, of which the one that takes the longest has the blocks that are left.

    So do the others in turn: what a tile takes is not known exactly.

    >>> few, many = Work(str, 3, 900), Work(str, 40, 200)
    >>> [(work.cycles, count) for work, count in _with_all([[few, many]], [(few, 3)], 132)]
    [(200, 40)]
    """
    found = list(chosen)
    left = blocks - sum(count for _, count in found)
    for place in sorted(range(len(found)), key=lambda place: -_taken(*found[place])):
        own = found[place][1]
        ways = [(work, min(work.tiles, own + left)) for work in tasks[place]]
        best = min(ways, key=lambda way: _taken(*way))
        if _taken(*best) < _taken(*found[place]):
            work, most = best
            count = -(-work.tiles // -(-work.tiles // most))  # no more than these rounds need
            found[place], left = (work, count), left - (count - own)
    return found


def _taken(work: Work, blocks: int) -> float:
    """The cycles of a task on so many blocks."""
    return -(-work.tiles // blocks) * work.cycles
