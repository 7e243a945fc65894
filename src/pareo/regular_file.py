"""Files that are named by a user: regular ones, of a bounded size.

A pipe without a writer would block for ever when it is opened, and a device may have no end.
"""

import errno
import os
import stat
from pathlib import Path


def regular(path: str | os.PathLike[str], largest: int | None = None) -> Path:
    """The path, if it is a regular file or a directory.

    Raises:
        OSError: it is missing, a pipe or a device, or larger than so many bytes.

    >>> regular("/dev/zero")
    Traceback (most recent call last):
    OSError: [Errno 22] it is a pipe or a device, not a file
    """
    found = os.stat(path)
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")
    if largest is not None and stat.S_ISREG(found.st_mode) and found.st_size > largest:
        raise OSError(errno.EFBIG, f"it has {found.st_size:,} bytes, more than {largest:,}")
    return Path(path)
