"""Everything that pareo raises on purpose, under one root: `PareoError`."""


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
