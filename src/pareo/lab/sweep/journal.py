"""What a sweep has done so far, line by line in a file, so that it can be resumed after any end.

The first line says which sweep it is. Each further line is one thing done: cells, a probe, a
largest batch, a ceiling, or that compilers are warm. A line is written to disk at once. A line that
the end of the process cut short is ignored. `pareo arena` keeps a journal, too, with a line for
each network.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pareo.errors import DataError, WriteError
from pareo.lab.experiment import records
from pareo.lab.experiment.results import Json


class NotWritten(WriteError):
    """The journal cannot be written, as where a disk is full."""


class Journal:
    """The file of one sweep, identified by `about`: settings, versions, machine.

    A second sweep with the same `about` resumes where the first stopped, unless the first is still
    running. After `finish` the next one starts from the beginning.
    """

    def __init__(
        self, about: dict[str, Json], folder: Path | None = None, kind: str = "sweep"
    ) -> None:
        text = json.dumps(about, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.path = (folder or records.place().parent / f"{kind}s") / f"{name}.jsonl"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "a+b")  # noqa: SIM115 (stays open and locked)
        except OSError as error:
            raise WriteError(f"{self.path}: cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise DataError(f"{self.path}: this {kind} is already running") from None
        self.lines = list(self._read({kind: about}))
        if not self.lines:
            self._file.truncate(0)
            self.add({kind: about})
        else:
            self.lines = self.lines[1:]

    def add(self, line: dict[str, Json]) -> None:
        """Write a line to disk."""
        text = json.dumps(line, allow_nan=False).encode() + b"\n"
        try:
            self._file.write(text)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise NotWritten(f"{self.path}: cannot be written: {error.strerror}") from error

    def finish(self) -> None:
        """Delete the file: nothing is left to do."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Leave the file, so that the sweep can be resumed."""
        with suppress(OSError):  # what could not be written before still cannot
            self._file.close()

    def _read(self, first: dict[str, Json]) -> Iterator[dict[str, Json]]:
        """Every whole line; none where the first is not this one."""
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file):
            try:
                found = json.loads(line)
            except ValueError:
                break
            if not line.endswith(b"\n") or (number == 0 and found != first):
                break
            whole += len(line)
            yield found
        self._file.truncate(whole)
