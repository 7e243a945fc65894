"""Times relative to one contestant of the same race, which cancels what slows both."""

from dataclasses import replace

from pareo.errors import PareoError
from pareo.lab.race.result import RaceResult, Row


def relative(race: RaceResult, against: str) -> RaceResult:
    """The race with times as multiples of one contestant's in the same rounds.

    Raises:
        PareoError: that contestant has no times.
    """
    base = next((row for row in race.rows if row.contestant == against), None)
    if base is None or not base.samples:
        raise PareoError(f"--against expects a contestant with times; {against} has none")
    seconds = dict(zip(base.rounds, base.samples, strict=True))
    return replace(race, rows=[_relative(row, seconds) for row in race.rows])


def _relative(row: Row, seconds: dict[int, float]) -> Row:
    """A row with its samples divided by those of the same rounds; others are left out."""
    both = [
        (number, sample / seconds[number])
        for number, sample in zip(row.rounds, row.samples, strict=True)
        if number in seconds
    ]
    return replace(row, samples=[ratio for _, ratio in both], rounds=[number for number, _ in both])
