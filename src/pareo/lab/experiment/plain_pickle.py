"""What a contestant's process sends, as plain data: unpacking it calls nothing of the contestant's.

Numbers, text, containers, NumPy's arrays and numbers, paths, and pareo's own classes.
"""

import io
import pickle
from typing import Any

# What NumPy's arrays, numbers and dtypes are rebuilt with, and paths.
MAKERS = {
    ("builtins", "complex"), ("builtins", "set"), ("builtins", "frozenset"),
    ("builtins", "bytearray"), ("collections", "OrderedDict"), ("collections", "Counter"),
    ("numpy", "ndarray"), ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("pathlib", "Path"), ("pathlib", "PosixPath"), ("pathlib", "WindowsPath"),
    ("pathlib", "PurePosixPath"), ("pathlib._local", "PosixPath"),
}  # fmt: skip


class NotPlain(ValueError):
    """An answer that holds something else."""


class _Unpacker(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("pareo."):
            found = super().find_class(module, name)
            if isinstance(found, type):
                return found
        elif (module.replace("numpy.core", "numpy._core"), name) in MAKERS:
            return super().find_class(module, name)
        raise NotPlain(f"it holds {module}.{name}")


def loads(packed: bytes) -> Any:
    """The answer in these bytes.

    >>> loads(pickle.dumps({"loss": 0.5}))
    {'loss': 0.5}
    >>> loads(pickle.dumps(print))
    Traceback (most recent call last):
    pareo.lab.experiment.plain_pickle.NotPlain: it holds builtins.print
    """
    return _Unpacker(io.BytesIO(packed)).load()
