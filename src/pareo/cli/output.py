"""What commands do with a result: a JSON file, `pareo history`, a report, the exit status."""

import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import typer

from pareo.cli.live import complain
from pareo.errors import PareoError
from pareo.lab import report
from pareo.lab.atomic_write import write_whole
from pareo.lab.experiment import records
from pareo.lab.experiment.entry import Outcome
from pareo.lab.experiment.results import Result, to_json

Output = Callable[[], str]  # writes a file, and returns a line that says where


def outputs(result: Result, json_file: Path | None, html: Path | None, save: bool) -> list[Output]:
    """The requested outputs, for `finish` to write."""
    found: list[Output] = []
    if json_file is not None:
        found.append(partial(_json, result, json_file))
    if save:
        found.append(lambda: f"saved as    {records.save(result)}, see `pareo history`")
    if html is not None:
        found.append(partial(write_report, result, html))
    return found


def finish(show: Callable[[], None], outputs: Iterable[Output]) -> bool:
    """Show the result, then write the outputs; whether all of them could be written.

    An output that cannot be written is reported after all others are written. A result that cannot
    be shown, because a pipe is closed or a disk is full, is written nevertheless.
    """
    unshown: BaseException | None = None
    try:
        show()
        sys.stdout.flush()
    except (Exception, SystemExit) as error:  # rich raises the latter on a closed pipe
        unshown = error
    lines, failures = [], []
    for write in outputs:
        try:
            lines.append(write())
        except Exception as error:  # any error: the other outputs are still written
            own = isinstance(error, PareoError)
            failures.append(str(error) if own else f"{type(error).__name__}: {error}")
    for failure in failures:
        print(f"pareo: {failure}", file=sys.stderr)
    if unshown is not None:
        raise unshown
    for line in lines:
        print(line)
    return not failures


def say_notes(network: str, notes: Iterable[str]) -> None:
    """Print what is different in training from the file that a network is from."""
    for note in notes:
        complain(f"{network}: {note}")


def _json(result: Result, path: Path) -> str:
    write_json(result, path)
    return f"result      {path}"


def not_existing(*files: Path | None) -> tuple[Path | None, ...]:
    """The files that an interrupted run may write: those that do not exist yet."""
    return tuple(None if path is None or path.is_file() else path for path in files)


def end(outcomes: Iterable[Outcome], written: bool = True) -> None:
    """Exit with status 1 if one was refused or failed, if all are missing, or if not written."""
    statuses = {outcome.status for outcome in outcomes}
    if not written or statuses & {"refused", "failed"} or statuses == {"missing"}:
        raise typer.Exit(1)


def write_json(result: Result, path: Path) -> None:
    """Write a result to a JSON file."""
    write_whole(path, to_json(result))


def write_report(result: Result, path: Path) -> str:
    """Write the report of a result of any kind; return a line that says where."""
    report.write(result, path)
    return f"report      {path.absolute()}"
