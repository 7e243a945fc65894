"""Scheduling on streams: which calls of a program must wait for which, and where each runs."""

from collections.abc import Sequence
from dataclasses import dataclass

Span = tuple[int, int]  # addresses: of the first byte, and of the one after the last


@dataclass(frozen=True)
class Access:
    """The memory that a call reads, and the memory that it writes."""

    reads: Sequence[Span]
    writes: Sequence[Span]


@dataclass(frozen=True)
class Placement:
    """The stream that a call runs on, and the calls on other streams that it waits for."""

    stream: int
    after: tuple[int, ...]


def dependencies(calls: Sequence[Access]) -> list[set[int]]:
    """For each call, the earlier ones that must be done first; indirect ones may be left out.

    A call depends on those that wrote what it reads, and on those that read or wrote what it
    writes.

    >>> one, two = (0, 8), (8, 16)
    >>> dependencies([Access([], [one]), Access([], [two]), Access([one], [two])])
    [set(), set(), {0, 1}]
    """
    edges = sorted(
        {edge for call in calls for span in (*call.reads, *call.writes) for edge in span}
    )
    place = {edge: cell for cell, edge in enumerate(edges)}
    writer: list[int | None] = [None] * len(edges)
    readers: list[list[int]] = [[] for _ in edges]

    def cells(spans: Sequence[Span]) -> set[int]:
        return {cell for low, high in spans for cell in range(place[low], place[high])}

    found: list[set[int]] = []
    for number, call in enumerate(calls):
        read, written = cells(call.reads), cells(call.writes)
        found.append({one for cell in read | written if (one := writer[cell]) is not None})
        for cell in written:
            found[-1].update(readers[cell])
            writer[cell], readers[cell] = number, []
        for cell in read - written:
            readers[cell].append(number)
    return found


def heights(before: Sequence[set[int]]) -> list[int]:
    """For each call, the length of the longest chain of calls that depend on it.

    >>> heights([set(), {0}, {1}, {0}])
    [2, 1, 0, 0]
    """
    high = [0] * len(before)
    for number in reversed(range(len(before))):
        for one in before[number]:
            high[one] = max(high[one], high[number] + 1)
    return high


def assign_streams(
    before: Sequence[set[int]], kinds: Sequence[int], limits: Sequence[int]
) -> list[Placement]:
    """A stream for each call, in the given order, on at most `limits` streams of each kind.

    A call runs on the stream of a call that it depends on if that was the stream's last, otherwise
    on one where it need not wait for anything else, otherwise on a new one. Calls of different
    kinds never share a stream.

    >>> for placement in assign_streams([set(), {0}, {0}, {1, 2}], [0] * 4, limits=[2]):
    ...     print(placement)
    Placement(stream=0, after=())
    Placement(stream=0, after=())
    Placement(stream=1, after=(0,))
    Placement(stream=1, after=(1,))
    """
    placements: list[Placement] = []
    last: list[int] = []  # call of each stream
    kind: list[int] = []  # of each stream
    done: list[dict[int, int]] = []  # for each call: by stream, the last call done when it is done
    for number, first in enumerate(before):
        newest = sorted(first, reverse=True)
        known = dict[int, int]()
        for one in newest:
            _join(known, done[one])
        own = [stream for stream in range(len(last)) if kind[stream] == kinds[number]]
        ends = {last[stream] for stream in own}
        stream = next((placements[one].stream for one in newest if one in ends), -1)
        if stream < 0:
            stream = next((stream for stream in own if known.get(stream, -1) >= last[stream]), -1)
        if stream < 0 and len(own) >= limits[kinds[number]]:
            stream = min(own, key=lambda stream: last[stream])
        if stream < 0:
            stream = len(last)
            last.append(number)
            kind.append(kinds[number])
            seen = dict[int, int]()
        else:
            seen = dict(done[last[stream]])
        after = []
        for one in newest:
            if seen.get(placements[one].stream, -1) < one:
                after.append(one)
                _join(seen, done[one])
        seen[stream] = last[stream] = number
        done.append(seen)
        placements.append(Placement(stream, tuple(after)))
    return placements


def _join(into: dict[int, int], other: dict[int, int]) -> None:
    for stream, call in other.items():
        into[stream] = max(into.get(stream, -1), call)
