"""Files that are written whole or not at all: what was there before is lost to no full disk."""

import secrets
from contextlib import suppress
from pathlib import Path

from pareo.errors import DataError


def write_whole(path: Path, text: str) -> None:
    """Write a text to a file; a DataError says why it could not be.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> write_whole(path, "one")
    >>> write_whole(path, "two")
    >>> path.read_text(), [file.name for file in path.parent.iterdir()]
    ('two', ['a.txt'])
    """
    try:
        if path.exists() and not path.is_file():  # a pipe, say, or a terminal
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path.resolve(), text)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from error


def _replace(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        # "x": a file or link of that name is somebody else's, and is neither written nor removed.
        with fresh.open("x", encoding="utf-8") as stream:
            try:
                stream.write(text)
                stream.flush()
                if path.exists():
                    fresh.chmod(path.stat().st_mode & 0o777)
                fresh.replace(path)
            except BaseException:
                with suppress(OSError):
                    fresh.unlink()
                raise
    except PermissionError:  # in a folder where nothing new may be made
        path.write_text(text, encoding="utf-8")
