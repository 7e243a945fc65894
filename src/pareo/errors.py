"""Everything that pareo raises on purpose, under one root: `PareoError`."""

import signal


class PareoError(Exception):
    """The root of pareo's own errors; its message is one sentence for the user."""


class ShapeError(PareoError, ValueError):
    """An array's shape, an axis or a size does not fit the operator."""


class DtypeError(PareoError, TypeError):
    """An argument is not an array, or is an array of a dtype that the operator does not take."""


class DeviceError(PareoError, RuntimeError):
    """A device is unknown, or is not available on this machine."""


class GradientError(PareoError, ValueError):
    """A gradient was asked for where there is none."""


class DataError(PareoError, ValueError):
    """A file from outside is not what it should be."""


class OutOfMemory(PareoError, MemoryError):
    """A device has not enough free memory; it is as usable as before.

    asked, free: in bytes. predicted: what `Program.memory` tells of the program, where one was
    being compiled.
    """

    def __init__(self, device: str, asked: int, free: int, predicted: int | None = None) -> None:
        self.device, self.asked, self.free, self.predicted = device, asked, free, predicted
        program = "" if predicted is None else f"; the program takes {predicted:,} B in all"
        super().__init__(
            f"the device '{device}' has {free:,} B of memory free; {asked:,} B were asked{program}"
        )

    def predicted_by(self, nbytes: int) -> "OutOfMemory":
        """The same, for a program that takes so many bytes in all."""
        return OutOfMemory(self.device, self.asked, self.free, nbytes)


def ending(status: int | None) -> str:
    """How a process ended, in words.

    >>> ending(-9)
    'the process was ended by SIGKILL, which is how Linux ends one when memory is short'
    """
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        cause = ", which is how Linux ends one when memory is short" if name == "SIGKILL" else ""
        return f"the process was ended by {name}{cause}"
    return f"the process ended with status {status}"
