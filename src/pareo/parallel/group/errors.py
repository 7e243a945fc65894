"""Errors of workers."""

from pareo.errors import PareoError


class WorkerError(PareoError, RuntimeError):
    """A worker failed or was lost; the message says which and why."""


class Aborted(Exception):
    """Training was aborted, because another worker failed or the caller was interrupted."""


def sentence(error: BaseException) -> str:
    """An error in one line, as a result reports it.

    >>> sentence(ValueError("no such thing"))
    'ValueError: no such thing'
    """
    if isinstance(error, PareoError):
        return str(error)
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
