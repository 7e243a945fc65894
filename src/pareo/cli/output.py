"""Where a result goes: a JSON file, a number of `pareo history`, a report, an exit status."""

import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import typer

from pareo.errors import PareoError
from pareo.lab import report
from pareo.lab.atomic_write import write_whole
from pareo.lab.experiment import records
from pareo.lab.experiment.entry import Outcome
from pareo.lab.experiment.results import Result, to_json

Output = Callable[[], str]  # writes something, and returns a line that says where


def outputs(result: Result, json_file: Path | None, html: Path | None, save: bool) -> list[Output]:
    """The outputs that were asked for, to be written by `finish`."""
    found: list[Output] = []
    if json_file is not None:
        found.append(partial(_json, result, json_file))
    if save:
        found.append(lambda: f"kept as     {records.save(result)}, see `pareo history`")
    if html is not None:
        found.append(partial(draw, result, html))
    return found


def finish(show: Callable[[], None], outputs: Iterable[Output]) -> bool:
    """Show what was measured, then write it; whether all of it could be written.

    What cannot be written is said in a sentence, after all that can be has been. What cannot be
    shown, as on a closed pipe or a full disk, is written all the same.
    """
    unshown: BaseException | None = None
    try:
        show()
        sys.stdout.flush()
    except (Exception, SystemExit) as error:  # the latter is how rich takes a closed pipe
        unshown = error
    told, failures = [], []
    for write in outputs:
        try:
            told.append(write())
        except Exception as error:  # whatever it is, it does not take the others with it
            own = isinstance(error, PareoError)
            failures.append(str(error) if own else f"{type(error).__name__}: {error}")
    for failure in failures:
        print(f"pareo: {failure}", file=sys.stderr)
    if unshown is not None:
        raise unshown
    for line in told:
        print(line)
    return not failures


def _json(result: Result, path: Path) -> str:
    write_json(result, path)
    return f"result      {path}"


def left_alone(*files: Path | None) -> tuple[Path | None, ...]:
    """The files that an interrupted run may write: those that are not there yet."""
    return tuple(None if path is None or path.is_file() else path for path in files)


def end(outcomes: Iterable[Outcome], written: bool = True) -> None:
    """Exit with status 1 where a contestant was refused or failed, or none could be tried.

    Also where not all was `written`.
    """
    statuses = {outcome.status for outcome in outcomes}
    if not written or statuses & {"refused", "failed"} or statuses == {"missing"}:
        raise typer.Exit(1)


def write_json(result: Result, path: Path) -> None:
    """Write all of a result to a file."""
    write_whole(path, to_json(result))


def draw(result: Result, path: Path) -> str:
    """Write the report of a result of any kind, and return a line that says where."""
    report.write(result, path)
    return f"report      {path.absolute()}"
