"""What can be said of a race as a whole."""

from pareo.lab.experiment.entry import fastest, ranked
from pareo.lab.formatting import digits
from pareo.lab.race.result import RaceResult, Row


def base_of(rows: list[Row]) -> Row | None:
    """The row that others are compared with: the fastest that is not pareo, else the slowest."""
    timed = ranked(rows)
    return fastest(timed, ours=False) or (timed[-1] if timed else None)


def headline(result: RaceResult) -> str:
    """Which contestant is fastest, and how certain that is, in one sentence."""
    timed = ranked(result.rows)
    if not timed:
        return "No contestant was timed; the notes below say why."
    first = timed[0]
    said = f"{first.contestant} has the shortest time: {digits(first.median)} s per epoch"
    if len(timed) == 1:
        return f"{said}. No other contestant was timed."
    second = timed[1]
    verdict = first.compared_with(second)
    if verdict.word == "faster":
        return f"{said}, {1 / verdict.ratio:.2f} times as fast as {second.contestant}."
    return f"{said}, but the samples cannot tell whether it is faster than {second.contestant}."
