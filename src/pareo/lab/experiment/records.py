"""Results that were kept, with their raw samples, in one SQLite file."""

import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pareo.errors import DataError, WriteError
from pareo.lab.experiment import results
from pareo.lab.experiment.results import Result
from pareo.regular_file import regular

VERSION = 1
RESULT = "CAST(result AS BLOB)"  # so that a row that is no text is reported alone
PATIENCE = 5.0  # seconds for another process that writes; it takes some hundredths of a second
LARGEST = 1 << 28  # bytes of a row
NUMBER = re.compile("[0-9]{1,18}")
TABLE = """
CREATE TABLE results (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    moment TEXT NOT NULL,
    network TEXT NOT NULL,
    result TEXT NOT NULL  -- JSON, as `pareo race --json` writes it
)
"""


def place() -> Path:
    """$PAREO_RECORDS, or `pareo/records.sqlite` in the user's data directory."""
    chosen = os.environ.get("PAREO_RECORDS")
    if chosen:
        return Path(chosen)
    folder = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(folder) / "pareo" / "records.sqlite"


def save(result: Result) -> int:
    """Keep a result, and return its number."""
    text = results.to_json(result, indent=None)
    results.parsed(text, "this result")  # what cannot be read again is not kept
    row = (result.when, result.network, text)
    with _opened(create=True) as file, file:
        added = file.execute("INSERT INTO results(moment, network, result) VALUES (?, ?, ?)", row)
        return int(added.lastrowid or 0)


def save_all(found: list[Result]) -> None:
    """Keep several results, all or none."""
    rows = [(one.when, one.network, results.to_json(one, indent=None)) for one in found]
    with _opened(create=True) as file, file:
        asked = "INSERT INTO results(moment, network, result) VALUES (?, ?, ?)"
        file.executemany(asked, rows)


def load(number: int) -> Result:
    """The result with a number."""
    with _opened() as file:
        asked = f"SELECT {RESULT} FROM results WHERE number = ?"
        found = file.execute(asked, (number,)).fetchone()
    if found is None:
        raise DataError(f"{place()}: there is no result {number}; `pareo history` lists them")
    return _parsed(number, found[0])


def everything() -> list[tuple[int, Result]]:
    """All results with their numbers, the oldest first; damaged ones are reported and left out."""
    if not place().exists():
        return []
    with _opened() as file:
        found = file.execute(f"SELECT number, {RESULT} FROM results ORDER BY number").fetchall()
    good = []
    for number, text in found:
        try:
            good.append((number, _parsed(number, text)))
        except DataError as error:
            print(f"pareo: left out: {error}", file=sys.stderr)
    return good


def find(name: str) -> Result:
    """The result that a user names: a number in the records, `last`, or a JSON file."""
    if name == "last":
        kept = everything()
        if not kept:
            raise DataError(f"{place()}: nothing is kept here yet; `pareo race --save` does")
        return kept[-1][1]
    return load(int(name)) if NUMBER.fullmatch(name) else results.read(Path(name))


def _parsed(number: int, kept: object) -> Result:
    """The result in a row, which may hold anything."""
    source = f"{place()}, result {number}"
    try:
        text = kept.decode() if isinstance(kept, bytes) else str(kept)
    except UnicodeDecodeError as error:
        raise DataError(f"{source}: expected JSON; got bytes that are no text") from error
    return results.parsed(text, source)


@contextmanager
def _opened(create: bool = False) -> Iterator[sqlite3.Connection]:
    path = place()
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.exists():
            raise DataError(f"{path}: nothing is kept here yet; `pareo race --save` does")
        if path.exists():
            regular(path)
        with closing(sqlite3.connect(path, timeout=PATIENCE)) as file:
            file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST)
            file.execute("PRAGMA trusted_schema = OFF")
            with (
                file
            ):  # one transaction, so that two races that start at the same time make one table
                file.execute("BEGIN IMMEDIATE" if create else "BEGIN")
                version = file.execute("PRAGMA user_version").fetchone()[0]
                if create and version == 0 and _empty(file):
                    file.execute(TABLE)
                    file.execute(f"PRAGMA user_version = {VERSION}")
                elif version != VERSION:
                    raise DataError(
                        f"{path}: expected pareo's records of version {VERSION}; got {version}"
                    )
                _check_tables(file, path)
            yield file
    except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
        if "locked" in str(error):
            raise DataError(
                f"{path}: another process has locked it for more than {PATIENCE:g} s; try again"
            ) from error
        raise DataError(f"{path}: expected pareo's records; got: {error}") from error
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror}") from error


def _check_tables(file: sqlite3.Connection, path: Path) -> None:
    """Refuse views, which may have no end, and triggers, which change what is written."""
    found = file.execute("SELECT type, name, substr(sql, 1, 20) FROM sqlite_master").fetchall()
    others = [
        kind for kind, _, sql in found if kind in ("view", "trigger") or "VIRTUAL" in str(sql)
    ]
    if others or ("table", "results") not in [(kind, name) for kind, name, _ in found]:
        raise DataError(f"{path}: expected pareo's records; got other tables, views or triggers")


def _empty(file: sqlite3.Connection) -> bool:
    return not file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


opened = _opened  # for the index of `pareo history`
