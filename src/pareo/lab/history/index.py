"""An index of the records: what `pareo history` shows of each, without reading all samples again.

It lies in more tables of the records' file. Results that are not in it yet are added when it is
asked; where the file cannot be written, it is made in memory.
"""

import hashlib
import json
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields

from pareo.errors import DataError
from pareo.lab.experiment import records, results
from pareo.lab.experiment.results import Result
from pareo.lab.history.points import Line, Point, points

TABLES = """
CREATE TABLE IF NOT EXISTS listed_1 (
    number INTEGER PRIMARY KEY, digest TEXT, moment TEXT, network TEXT, batch TEXT, precision TEXT,
    best TEXT, seconds TEXT
);
CREATE TABLE IF NOT EXISTS texts_1 (id INTEGER PRIMARY KEY, text TEXT UNIQUE);
CREATE TABLE IF NOT EXISTS lines_1 (id INTEGER PRIMARY KEY, line TEXT UNIQUE);
CREATE TABLE IF NOT EXISTS points_1 (
    line INTEGER, number INTEGER, moment TEXT, seconds REAL, low REAL, high REAL, floor REAL,
    version INTEGER, driver INTEGER, system INTEGER
);
"""
PIECE = 500  # results that are read at once
Best = Callable[[Result], tuple[str, str]]


@dataclass(frozen=True)
class Listed:
    """A result in a list: its number, and what is said of it in a line."""

    number: int
    moment: str
    network: str
    batch: str
    precision: str
    best: str
    seconds: str


def listed(best: Best, most: int | None = None) -> tuple[list[Listed], int]:
    """The latest results, the latest last, and how many there are in all.

    best: what is best in a result, and its seconds, as `pareo history` shows it.
    """
    with _indexed(best) as file:
        count = file.execute("SELECT count(*) FROM listed_1").fetchone()[0]
        chosen = ", ".join(field.name for field in fields(Listed))
        asked = f"SELECT {chosen} FROM listed_1 WHERE best IS NOT NULL ORDER BY number DESC LIMIT ?"
        found = file.execute(asked, (-1 if most is None else most,)).fetchall()
    return [Listed(*row) for row in reversed(found)], int(count)


def by_line(best: Best) -> dict[Line, list[Point]]:
    """The points of all races and sweeps."""
    with _indexed(best) as file:
        texts = dict(file.execute("SELECT id, text FROM texts_1"))
        found: dict[int, list[Point]] = {}
        said: dict[tuple[int, ...], tuple[str, ...]] = {}
        for row in file.execute("SELECT * FROM points_1"):
            ids = row[7:]
            if ids not in said:
                said[ids] = tuple(texts[one] for one in ids)
            if row[0] not in found:
                found[row[0]] = []
            found[row[0]].append(tuple.__new__(Point, row[1:7] + said[ids]))  # quicker than _make
        named = file.execute("SELECT id, line FROM lines_1")
        return {Line(*json.loads(line)): found[own] for own, line in named if own in found}


def digests(best: Best) -> set[str]:
    """What tells results apart that are in the records."""
    with _indexed(best) as file:
        return {row[0] for row in file.execute("SELECT digest FROM listed_1")}


def digest(result: Result) -> str:
    """The same for the same result, whatever file it was read from."""
    return _digest(results.to_json(result, indent=None))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


class _indexed:
    """The records' file with an index that is complete."""

    def __init__(self, best: Best) -> None:
        self._best = best

    def __enter__(self) -> sqlite3.Connection:
        self._opened = records.opened()
        file = self._opened.__enter__()
        try:
            # Whatever bytes a file holds, they become text: what is wrong is said below.
            file.text_factory = lambda held: held.decode("utf-8", "replace")
            try:
                self._complete(file)
            except sqlite3.OperationalError:  # it cannot be written
                found = sqlite3.connect(":memory:")
                file.backup(found)
                file = found
                self._complete(file)
            file.text_factory = str  # which is quicker, for what was written here
        except BaseException:
            self._opened.__exit__(*sys.exc_info())
            raise
        return file

    def __exit__(self, *error: object) -> None:
        self._opened.__exit__(*error)  # type: ignore[arg-type]

    def _complete(self, file: sqlite3.Connection) -> None:
        last = "SELECT max(number) FROM "
        newest = file.execute(f"{last} results").fetchone()[0] or 0
        known = file.execute(
            "SELECT count(*) FROM sqlite_master WHERE name = 'listed_1'"
        ).fetchone()[0]
        done = (file.execute(f"{last} listed_1").fetchone()[0] or 0) if known else 0
        if known and done >= newest:
            return
        file.executescript(TABLES)
        while self._add_some(file, f"{last} listed_1"):
            pass

    def _add_some(self, file: sqlite3.Connection, last: str) -> int:
        """Add some results that are not in the index; how many: another process may do the same."""
        with file:
            file.execute("BEGIN IMMEDIATE")
            done = file.execute(last).fetchone()[0] or 0
            rows = file.execute(
                "SELECT number, result FROM results WHERE number > ? ORDER BY number LIMIT ?",
                (done, PIECE),
            ).fetchall()
            for number, text in rows:
                self._add(file, number, str(text))
        return len(rows)

    def _add(self, file: sqlite3.Connection, number: int, text: str) -> None:
        nothing: tuple[object, ...] = (None,) * 6
        try:
            result = results.parsed(text, f"{records.place()}, result {number}")
            best = self._best(result)
            batch = str(getattr(result, "batch", result.kind))
            precision = str(getattr(result, "precision", ""))
            shown: tuple[object, ...] = (
                result.moment, result.network, batch, precision, *best,
            )  # fmt: skip
            found = list(points(number, result))
        except DataError as error:
            print(f"pareo: left out: {error}", file=sys.stderr)
            shown, found = nothing, []
        row = (number, _digest(text), *shown)
        file.execute(f"INSERT OR REPLACE INTO listed_1 VALUES ({', '.join('?' * 8)})", row)
        for line, point in found:
            own = _number(file, "lines_1(line)", json.dumps(astuple(line)))
            *held, version, driver, system = point
            said = (_number(file, "texts_1(text)", text) for text in (version, driver, system))
            file.execute(
                f"INSERT INTO points_1 VALUES ({', '.join('?' * 10)})", (own, *held, *said)
            )


def _number(file: sqlite3.Connection, place: str, text: str) -> int:
    """The number of a text in a table, to which it is added if it is new."""
    table, column = place.rstrip(")").split("(")
    file.execute(f"INSERT OR IGNORE INTO {place} VALUES (?)", (text,))
    found = file.execute(f"SELECT id FROM {table} WHERE {column} = ?", (text,)).fetchone()
    return int(found[0])
