"""The exceptions of pareo, with one base class: `PareoError`."""

import signal

LONGEST = 1000  # characters of a message that quotes a file


class PareoError(Exception):
    """The base class of pareo's exceptions; the message is one sentence for the user.

    exit_status: of a command that ends with it: 2, it was used wrongly; 1, what it was asked for
    failed.
    """

    exit_status = 2


class RunError(PareoError):
    """What was asked for is possible, and failed."""

    exit_status = 1


def printable_line(text: str) -> str:
    """A text from outside as one printable line of bounded length."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


class ShapeError(PareoError, ValueError):
    """An array's shape, an axis or a size does not fit the operator."""


class DtypeError(PareoError, TypeError):
    """An argument is not an array, or is an array of a dtype that the operator does not take."""


class DeviceError(PareoError, RuntimeError):
    """A device is unknown, or is not available on this machine."""


class GradientError(PareoError, ValueError):
    """A gradient was requested where there is none."""


class DataError(PareoError, ValueError):
    """A file does not have the expected content.

    The message may name what the file says; it is one printable line of bounded length still.

    >>> str(DataError("a.onnx: the node 'a\\x00\\x1b[31m' is unknown"))
    "a.onnx: the node 'a\\\\x00\\\\x1b[31m' is unknown"
    """

    def __str__(self) -> str:
        return printable_line(super().__str__())


class WriteError(RunError, DataError):
    """A file cannot be written."""


class OutOfMemory(RunError, MemoryError):
    """A device does not have enough free memory; it stays usable.

    asked, free: in bytes. predicted: the result of `Program.memory`, if a program was being
    compiled.
    """

    def __init__(self, device: str, asked: int, free: int, predicted: int | None = None) -> None:
        self.device, self.asked, self.free, self.predicted = device, asked, free, predicted
        program = "" if predicted is None else f"; the program takes {predicted:,} B in all"
        super().__init__(
            f"the device '{device}' has {free:,} B of memory free; {asked:,} B were needed{program}"
        )

    def with_prediction(self, nbytes: int) -> "OutOfMemory":
        """The same error, for a program that takes so many bytes in all."""
        return OutOfMemory(self.device, self.asked, self.free, nbytes)


def exit_reason(status: int | None) -> str:
    """How a process ended, from its exit status.

    >>> exit_reason(-9)
    'the process was ended by SIGKILL, which Linux sends when memory is short'
    """
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        cause = ", which Linux sends when memory is short" if name == "SIGKILL" else ""
        return f"the process was ended by {name}{cause}"
    return f"the process ended with status {status}"
