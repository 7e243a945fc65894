"""Reads the files of a tar archive, gzipped or not, from memory; nothing is extracted."""

import gzip
import io
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from pareo.errors import DataError
from pareo.regular_file import regular

SUFFIXES = (".tar", ".tar.gz", ".tgz")
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 20


def read(path: Path, largest: int) -> dict[str, memoryview]:
    """Return the content of each file in the archive, by its name without folders.

    Args:
        path: the archive; its first bytes decide whether it is gzipped.
        largest: bytes that the unpacked archive may have; reading stops there.

    Raises:
        DataError: the archive cannot be read, is too large or damaged, or has two files of a name.
    """
    unpacked = _unpacked(path, largest)
    raw = unpacked.getbuffer()
    found: dict[str, memoryview] = {}
    try:
        with tarfile.open(fileobj=unpacked, mode="r:") as archive:
            for member in archive:
                # A negative size would lead the search for the next member back to this one.
                if member.size < 0 or member.offset_data + member.size > len(raw):
                    raise DataError(
                        f"{path}: expected complete files; got one of {member.size:,} bytes in "
                        f"{len(raw):,} bytes"
                    )
                # Links and folders have no content, and what a sparse file has is not its size.
                if not member.isreg() or member.issparse():
                    continue
                name = PurePosixPath(member.name).name
                if name in found:
                    raise DataError(f"{path}: expected one file named {name}; got two")
                found[name] = raw[member.offset_data :][: member.size]
    except (tarfile.TarError, ValueError, OverflowError, RecursionError, EOFError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: expected a tar archive; got an error: {error}") from error
    return found


def _unpacked(path: Path, largest: int) -> io.BytesIO:
    unpacked = io.BytesIO()
    try:
        with regular(path).open("rb") as stream:
            packed = stream.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            stream.seek(0)
            plain = gzip.GzipFile(fileobj=stream) if packed else stream
            while unpacked.tell() <= largest and (chunk := plain.read(_CHUNK)):
                unpacked.write(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: expected a complete gzip file; got an error: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: expected a file to read; got: {error.strerror}") from error
    if unpacked.tell() > largest:
        raise DataError(
            f"{path}: expected an archive of at most {largest:,} bytes when unpacked; got more"
        )
    unpacked.seek(0)
    return unpacked
