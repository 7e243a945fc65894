"""Files that are written completely or not at all: a full disk does not destroy the old file."""

import secrets
from contextlib import suppress
from pathlib import Path

from pareo.errors import WriteError


def write_whole(path: Path, text: str) -> None:
    """Write a text to a file; DataError says why that failed.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> write_whole(path, "one")
    >>> write_whole(path, "two")
    >>> path.read_text(), [file.name for file in path.parent.iterdir()]
    ('two', ['a.txt'])
    """
    try:
        if path.exists() and not path.is_file():  # for example a pipe or a terminal
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path.resolve(), text)
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror}") from error


def _replace(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        # "x": a file or link that has this name already is neither written nor removed.
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
    except PermissionError:  # the directory allows no new files
        path.write_text(text, encoding="utf-8")
