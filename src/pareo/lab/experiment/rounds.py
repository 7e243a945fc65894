"""Rounds: everyone takes a turn, again and again, so what slows the machine slows all alike."""

import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeVar

E = TypeVar("E")


def rounds(
    entries: Callable[[], Sequence[E]],
    turn: Callable[[E, int], None],
    over: Callable[[int, float], bool],
    say: Callable[[int], None] = lambda number: None,
) -> None:
    """Let all entries take a turn in rounds 1, 2, ... until it is over.

    Args:
        entries: those that still take part; asked before every round.
        turn: one turn of an entry, in the round of this number.
        over: whether the round of this number, which took so many seconds, was the last.
        say: called before each round; its time is not counted.

    >>> rounds(lambda: "ab", lambda entry, number: print(entry, number), lambda n, took: n > 1)
    a 1
    b 1
    a 2
    b 2
    """
    for number in count(1):
        say(number)
        began = time.perf_counter()
        for entry in entries():
            turn(entry, number)
        if over(number, time.perf_counter() - began):
            return
