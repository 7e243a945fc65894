"""A lock on a checkpoint: one run at a time writes to it.

The lock belongs to the process: the kernel drops it when the process ends, however it ends. The
file beside the checkpoint has the number of that process, for the error that another run gets.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pareo.errors import DataError
from pareo.training.checkpoint import unwritable


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """A scope in which no other run can write to a checkpoint.

    Raises:
        DataError: another run writes to it, or its directory cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder) / "last.safetensors"):
    ...     with locked(Path(folder) / "last.safetensors"):  # doctest: +ELLIPSIS
    ...         pass
    Traceback (most recent call last):
    pareo.errors.DataError: ...last.safetensors: is being written by another run...
    """
    path = file.with_name(f".{file.name}.lock")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = _taken(path)
    except BlockingIOError as error:
        raise DataError(
            f"{file}: is being written by another run{_owner(path)}; wait for its end, or choose "
            "another path"
        ) from error
    except OSError as error:
        raise unwritable(file, error.strerror or str(error)) from error
    try:
        yield
    finally:
        with suppress(OSError):
            if _is_at(handle, path):  # the directory may have been replaced meanwhile
                path.unlink()
        os.close(handle)


def _taken(path: Path) -> int:
    """The open lock file, locked; BlockingIOError if another process has it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
                os.close(handle)
                raise
            return handle  # a file system without locks
        if _is_at(handle, path):  # not removed by its last owner in between
            with suppress(OSError):  # a full disk: the number is only for a message
                os.ftruncate(handle, 0)
                os.pwrite(handle, str(os.getpid()).encode(), 0)
            return handle
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _owner(path: Path) -> str:
    with suppress(OSError, ValueError):
        return f", process {int(path.read_text()[:20])}"
    return ""
