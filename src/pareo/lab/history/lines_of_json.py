"""Results as JSON Lines, to carry them from one machine to another."""

from collections.abc import Iterator
from pathlib import Path

from pareo.errors import DataError
from pareo.lab.atomic_write import write_whole
from pareo.lab.experiment import records, results
from pareo.lab.experiment.results import LARGEST, Result
from pareo.lab.history.index import Best, digest, digests


def write(path: Path) -> int:
    """Write all results to a file, one JSON object a line, the oldest first; how many there are."""
    lines = [results.to_json(result, indent=None) for _, result in records.everything()]
    write_whole(path, "".join(f"{line}\n" for line in lines))
    return len(lines)


def results_in(path: Path) -> Iterator[tuple[int, Result]]:
    """The results in a file, each with the number of its line; DataError names a wrong line."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if len(line) > LARGEST:
                    raise DataError(f"{path}, line {number}: expected a result; got {len(line)} B")
                if line.strip():
                    yield number, results.parsed(line, f"{path}, line {number}")
    except OSError as error:
        raise DataError(f"{path}: expected a file to read; got: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected JSON Lines; got bytes that are no text") from error


def read(path: Path, best: Best) -> tuple[int, int]:
    """Add the results in a file to the records: how many are new, and how many were there.

    All lines are checked before any is added: DataError names the line that is wrong.
    """
    known = digests(best) if records.place().exists() else set()
    found, there = [], 0
    for _, result in results_in(path):
        own = digest(result)
        there += own in known
        if own not in known:
            known.add(own)
            found.append(result)
    if found:
        records.save_all(found)
        digests(best)  # so that the next `pareo history` is quick
    return len(found), there
