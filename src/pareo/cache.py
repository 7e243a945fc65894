"""The folder where pareo keeps what is dear to make and safe to delete.

It is never needed: where a file cannot be read it is made again, and where none can be written
pareo works in memory and says so once.
"""

import hashlib
import os
import sys
import uuid
from contextlib import suppress
from pathlib import Path

_DIGEST = hashlib.sha256().digest_size
_said: set[str] = set()


def cache_folder() -> Path:
    """$PAREO_CACHE_DIR, or `pareo` in the user's own cache folder.

    Raises:
        OSError: neither is set, and the user has no home directory.
    """
    chosen = os.environ.get("PAREO_CACHE_DIR")
    if chosen:
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pareo"
    except RuntimeError as error:
        reason = "this user has no home directory; set PAREO_CACHE_DIR to a writable folder"
        raise FileNotFoundError(reason) from error


def kept(*place: str) -> bytes | None:
    """What `keep` wrote at a place in the cache folder; None where nothing is.

    A file whose content is not the one written is removed, and counts as missing.
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


def keep(content: bytes, *place: str) -> None:
    """Write content and its SHA-256 to a place in the cache folder, if that is possible."""
    write(hashlib.sha256(content).digest() + content, *place)


def write(content: bytes, *place: str) -> Path | None:
    """Write a file that other processes see whole or not at all; None where that is impossible."""
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
        told = f" ({error.filename})" if error.filename else ""
        _say(
            "write",
            f"the cache folder cannot be written, so nothing is kept for next time: "
            f"{error.strerror or error}{told}",
        )
        return None


def discard(path: Path) -> None:
    """Remove a damaged file, so that what it held is made again."""
    with suppress(OSError):
        path.unlink()
    _say("damage", f"{path}: is damaged and will be made again")


def _say(kind: str, sentence: str) -> None:
    """Tell the user once in the life of this process."""
    if kind not in _said:
        _said.add(kind)
        print(f"pareo: {sentence}", file=sys.stderr, flush=True)
