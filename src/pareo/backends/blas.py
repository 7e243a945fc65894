"""The BLAS behind NumPy: how many threads it uses, and what it is."""

import threading
from collections.abc import Callable
from typing import Any

_lock = threading.Lock()
_setters: list[Callable[[int], Any]] | None = None
_count: int | None = None


def threads(count: int) -> None:
    """Let NumPy's matrix products use this many threads, in the whole process.

    >>> threads(1)
    >>> describe()["threads"]
    1
    """
    global _count, _setters
    if count == _count:  # one comparison is all that a kernel pays when nothing changes
        return
    with _lock:
        if _setters is None:
            _setters = [library.set_num_threads for library in _libraries()]
        for setter in _setters:
            setter(count)
        _count = count


def describe() -> dict[str, Any]:
    """Name, version and present number of threads of NumPy's BLAS; 'unknown' where it hides.

    >>> sorted(describe())
    ['name', 'threads', 'version']
    """
    for library in _libraries():
        found = library.info()
        return {
            "name": found["internal_api"],
            "version": found["version"] or "unknown",
            "threads": found["num_threads"],
        }
    return {"name": "unknown", "version": "unknown", "threads": "unknown"}


def _libraries() -> list[Any]:
    """The BLAS libraries to steer: NumPy's own where it brought one, else all that are loaded.

    A peer's BLAS in the same process is its own matter: a race would not be fair otherwise.
    """
    from threadpoolctl import ThreadpoolController  # only a matrix product needs it

    loaded = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library for library in loaded if "numpy" in library.filepath] or loaded
