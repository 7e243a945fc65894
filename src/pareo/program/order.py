"""Which steps must wait for which, where several may run at once, and on how many lines."""

from collections.abc import Sequence
from dataclasses import dataclass

Span = tuple[int, int]  # from the first byte to the one after the last


@dataclass(frozen=True)
class Touches:
    """The stretches of memory that a step reads, and those that it writes."""

    reads: Sequence[Span]
    writes: Sequence[Span]


@dataclass(frozen=True)
class Turn:
    """On which line a step runs, after which steps of other lines."""

    line: int
    after: tuple[int, ...]


def waits(steps: Sequence[Touches]) -> list[set[int]]:
    """For each step those before it that must be done first; those before these may be left out.

    A step waits for who wrote what it reads, and for who read or wrote what it writes.

    >>> one, two = (0, 8), (8, 16)
    >>> waits([Touches([], [one]), Touches([], [two]), Touches([one], [two])])
    [set(), set(), {0, 1}]
    """
    edges = sorted(
        {edge for step in steps for span in (*step.reads, *step.writes) for edge in span}
    )
    place = {edge: cell for cell, edge in enumerate(edges)}
    writer: list[int | None] = [None] * len(edges)
    readers: list[list[int]] = [[] for _ in edges]

    def cells(spans: Sequence[Span]) -> set[int]:
        return {cell for low, high in spans for cell in range(place[low], place[high])}

    found: list[set[int]] = []
    for number, step in enumerate(steps):
        read, written = cells(step.reads), cells(step.writes)
        found.append({one for cell in read | written if (one := writer[cell]) is not None})
        for cell in written:
            found[-1].update(readers[cell])
            writer[cell], readers[cell] = number, []
        for cell in read - written:
            readers[cell].append(number)
    return found


def heights(before: Sequence[set[int]]) -> list[int]:
    """For each step how many follow on it, one upon the other, at most.

    >>> heights([set(), {0}, {1}, {0}])
    [2, 1, 0, 0]
    """
    high = [0] * len(before)
    for number in reversed(range(len(before))):
        for one in before[number]:
            high[one] = max(high[one], high[number] + 1)
    return high


def lines(before: Sequence[set[int]], kinds: Sequence[int], most: Sequence[int]) -> list[Turn]:
    """A line for each step, in the order given, on at most so many lines of each kind.

    A step goes on the line of someone whom it waits for, else on one where it loses nothing, else
    on a new one. Steps of one kind share no line with those of another.

    >>> for turn in lines([set(), {0}, {0}, {1, 2}], [0] * 4, most=[2]):
    ...     print(turn)
    Turn(line=0, after=())
    Turn(line=0, after=())
    Turn(line=1, after=(0,))
    Turn(line=1, after=(1,))
    """
    turns: list[Turn] = []
    last: list[int] = []  # step of each line
    kind: list[int] = []  # of each line
    done: list[dict[int, int]] = []  # for each step: by line, the last that is done when it is
    for number, first in enumerate(before):
        newest = sorted(first, reverse=True)
        known = dict[int, int]()
        for one in newest:
            _join(known, done[one])
        mine = [line for line in range(len(last)) if kind[line] == kinds[number]]
        line = next((turns[one].line for one in newest if one in (last[line] for line in mine)), -1)
        if line < 0:
            line = next((line for line in mine if known.get(line, -1) >= last[line]), -1)
        if line < 0 and len(mine) >= most[kinds[number]]:
            line = min(mine, key=lambda line: last[line])
        if line < 0:
            line = len(last)
            last.append(number)
            kind.append(kinds[number])
            seen = dict[int, int]()
        else:
            seen = dict(done[last[line]])
        after = []
        for one in newest:
            if seen.get(turns[one].line, -1) < one:
                after.append(one)
                _join(seen, done[one])
        seen[line] = last[line] = number
        done.append(seen)
        turns.append(Turn(line, tuple(after)))
    return turns


def _join(into: dict[int, int], other: dict[int, int]) -> None:
    for line, step in other.items():
        into[line] = max(into.get(line, -1), step)
