"""Faults that are injected on purpose, counted, and judged: `make faults`.

A kind of fault is a function that prepares one fault from a seed, in a directory, and returns what
to try. Trying it may return or raise a `PareoError`, which is one sentence for the user: the fault
was survived. Anything else (another exception, a wrong result, a hang, a crash, too much memory) is
a loss.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

Attempt = Callable[[], object]
Draw = Callable[[Random, Path], Attempt]


class Lost(AssertionError):
    """A promise was broken; the message says which."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    count: how many of them `make faults` injects; quick: how many `make test` does.
    """

    name: str
    draw: Draw
    count: int
    quick: int = 0
    seconds: float = 15.0
    batch: int = 150  # faults of one process
    limited: bool = True  # whether its address space is limited


def expect(truth: object, promise: str) -> None:
    """Raise `Lost` with the promise that was broken."""
    if not truth:
        raise Lost(promise)
