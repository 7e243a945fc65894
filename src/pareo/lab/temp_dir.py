"""A folder for large files of one process, removed when it ends, or later if it was killed.

What may be removed is decided by a marker file inside, never by a folder's name or age. The owner
holds a lock on its marker for as long as it lives; the kernel drops the lock with the process.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "pareo-scratch-"
MARKER, FILES = "marker", "files"


@contextmanager
def folder() -> Iterator[Path]:
    """A new folder; those that killed processes of this user left behind are removed.

    >>> with folder() as place:
    ...     place.is_dir()
    True
    >>> place.exists()
    False
    """
    for other in _candidates():
        _remove_abandoned(other)
    top = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = os.open(top / MARKER, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with suppress(OSError):  # a file system without locks: then nobody may remove it
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.write(lock, _written(top))  # after the lock, or another process would take it
        files = top / FILES
        files.mkdir()
        yield files
    finally:
        _remove(top)
        os.close(lock)


def _written(top: Path) -> bytes:
    """What a marker says; it names its folder, so one that was copied or renamed is not ours."""
    return f"{top.name}: temporary files of pareo, which it may delete at any time\n".encode()


def _candidates() -> list[Path]:
    try:
        return list(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))
    except OSError:
        return []


def _remove_abandoned(top: Path) -> None:
    """Remove a folder of this user whose marker is ours and whose owner is gone."""
    try:
        found = os.lstat(top)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return
        # Neither a link nor a pipe, which would wait for a writer, is a marker.
        lock = os.open(top / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        expected = _written(top)
        if os.read(lock, len(expected) + 1) == expected:
            _remove(top)
    except OSError:
        pass  # its owner lives, or its marker cannot be read
    finally:
        os.close(lock)


def _remove(top: Path) -> None:
    """Remove a folder, its marker last: if this is interrupted, the next process goes on."""
    shutil.rmtree(top / FILES, ignore_errors=True)
    if (top / FILES).exists():
        return
    with suppress(OSError):  # somebody put something of their own there, which is left alone
        (top / MARKER).unlink()
        top.rmdir()
