"""A folder for large files of one process, gone when it ends; also those that a SIGKILL left."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = re.compile(r"pareo-(\d+)-\w+")


@contextmanager
def folder() -> Iterator[Path]:
    """A new folder, named after this process; those of processes that are gone are removed.

    >>> with folder() as place:
    ...     place.is_dir()
    True
    >>> place.exists()
    False
    """
    for other in Path(tempfile.gettempdir()).glob("pareo-*"):
        named = NAME.fullmatch(other.name)
        if named and not _lives(int(named[1])):
            shutil.rmtree(other, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"pareo-{os.getpid()}-") as place:
        yield Path(place)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, then
    return True
