"""The cache directory: files that are expensive to make and safe to delete.

A file that cannot be read is made again. Where none can be written, pareo works in memory and
reports that once.
"""

import hashlib
import os
import sys
import uuid
from contextlib import suppress
from pathlib import Path

_DIGEST = hashlib.sha256().digest_size
_reported: set[str] = set()


def cache_folder() -> Path:
    """$PAREO_CACHE_DIR, or `pareo` in the user's cache directory.

    Raises:
        OSError: neither is set, and the user has no home directory.
    """
    chosen = os.environ.get("PAREO_CACHE_DIR")
    if chosen:
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pareo"
    except RuntimeError as error:
        reason = "this user has no home directory; set PAREO_CACHE_DIR to a writable directory"
        raise FileNotFoundError(reason) from error


def read_checked(*place: str) -> bytes | None:
    """What `write_checked` wrote to a path in the cache directory; None if there is nothing.

    A file whose SHA-256 does not match is removed, and counts as missing.
    """
    try:
        path = cache_folder().joinpath(*place)
        content = path.read_bytes()
    except OSError:
        return None
    digest, rest = content[:_DIGEST], content[_DIGEST:]
    if hashlib.sha256(rest).digest() == digest:
        return rest
    discard(path)
    return None


def write_checked(content: bytes, *place: str) -> None:
    """Write content and its SHA-256 to a path in the cache directory, if that is possible."""
    write(hashlib.sha256(content).digest() + content, *place)


def write(content: bytes, *place: str) -> Path | None:
    """Write a file atomically and return its path; None where that is impossible."""
    try:
        path = cache_folder().joinpath(*place)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            fresh.write_bytes(content)
            fresh.replace(path)
        except BaseException:
            with suppress(OSError):
                fresh.unlink()
            raise
        return path
    except OSError as error:
        file = f" ({error.filename})" if error.filename else ""
        _report(
            "write",
            f"the cache directory cannot be written, so nothing is kept for next time: "
            f"{error.strerror or error}{file}",
        )
        return None


def discard(path: Path) -> None:
    """Remove a damaged file, so that it is made again."""
    with suppress(OSError):
        path.unlink()
    _report("damage", f"{path}: is damaged and will be made again")


def _report(kind: str, sentence: str) -> None:
    """Print a message on standard error, once for each kind in the life of this process."""
    if kind not in _reported:
        _reported.add(kind)
        print(f"pareo: {sentence}", file=sys.stderr, flush=True)
