"""What a sweep has done so far, line by line in a file, so that it can go on after any end.

The first line says which sweep it is; each line after it is one thing done: a cell, a probe, a
ceiling, or that compilers have been warmed. A line is written at once and to the disk. One that was
cut short by the end of the process is not counted.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pareo.errors import DataError
from pareo.lab.experiment import records


class NotWritten(DataError):
    """The disk has no room for what was done."""


class Journal:
    """The file of one sweep, which is `about` something: settings, versions, machine.

    Of two sweeps that are about the same, the second goes on where the first one stopped; not
    while the first is still running. `finish` it when all is done, and the next begins anew.
    """

    def __init__(self, about: dict[str, Any], folder: Path | None = None) -> None:
        text = json.dumps(about, sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.path = (folder or records.place().parent / "sweeps") / f"{name}.jsonl"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "a+b")  # noqa: SIM115 (open, and locked)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise DataError(f"{self.path}: this very sweep is running already") from None
        self.lines = list(self._read(about))
        if not self.lines:
            self._file.truncate(0)
            self.add({"sweep": about})
        else:
            self.lines = self.lines[1:]

    def add(self, line: dict[str, Any]) -> None:
        """Write a line, for good."""
        text = json.dumps(line, allow_nan=False).encode() + b"\n"
        try:
            self._file.write(text)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise NotWritten(f"{self.path}: cannot be written: {error.strerror}") from error

    def finish(self) -> None:
        """Nothing is left to do: the next sweep of this kind begins anew."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Leave the file for whoever goes on."""
        with suppress(OSError):  # what could not be written cannot be now
            self._file.close()

    def _read(self, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Every whole line; none where the first is not about this sweep."""
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file):
            try:
                found = json.loads(line)
            except ValueError:
                break
            if not line.endswith(b"\n") or (number == 0 and found != {"sweep": about}):
                break
            whole += len(line)
            yield found
        self._file.truncate(whole)
