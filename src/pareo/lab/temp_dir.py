"""A temporary directory for large files, removed when its process ends, or later if it was killed.

A marker file inside decides whether a directory may be removed, never its name or age. The process
that owns it locks the marker while it lives; the kernel drops the lock when the process ends.
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
    """A new directory; directories that killed processes of this user left are removed.

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
        with suppress(OSError):  # a file system without locks: then no other process removes it
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.write(lock, _written(top))  # after the lock, or another process could remove it
        files = top / FILES
        files.mkdir()
        yield files
    finally:
        _remove(top)
        os.close(lock)


def _written(top: Path) -> bytes:
    """The text of a marker; it names its directory, so a copied or renamed one is not removed."""
    return f"{top.name}: temporary files of pareo, which it may delete at any time\n".encode()


def _candidates() -> list[Path]:
    try:
        return list(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))
    except OSError:
        return []


def _remove_abandoned(top: Path) -> None:
    """Remove a directory of this user that has a valid marker and whose process has ended."""
    try:
        found = os.lstat(top)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return
        # A link is not a marker, nor is a pipe, which would wait for a writer.
        lock = os.open(top / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        expected = _written(top)
        if os.read(lock, len(expected) + 1) == expected:
            _remove(top)
    except OSError:
        pass  # its process is alive, or its marker cannot be read
    finally:
        os.close(lock)


def _remove(top: Path) -> None:
    """Remove a directory, its marker last: if interrupted, the next process continues."""
    shutil.rmtree(top / FILES, ignore_errors=True)
    if (top / FILES).exists():
        return
    with suppress(OSError):  # another program put a file there, which is kept
        (top / MARKER).unlink()
        top.rmdir()
