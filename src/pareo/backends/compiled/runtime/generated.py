"""Modules written with their sizes filled in; a copy to read lies beside their machine code."""

import hashlib
import sys
import threading
from types import ModuleType
from typing import Any

from pareo.backends.compiled.runtime.cache import folder
from pareo.cache import cache_folder, write


def generated(source: str) -> Any:
    """The module of a source text."""
    name = f"sized_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    with _lock:
        module = f"pareo_generated_{name}"
        if module not in sys.modules:
            sys.modules[module] = _executed(source, module, _written(source, f"{name}.py"))
        return sys.modules[module]


def _written(source: str, name: str) -> str:
    """The file that holds the text, which is mended if it holds another; a name if there is none.

    It is never executed, so that whatever happens to it is of no account.
    """
    place = *folder(), "generated", name
    try:
        path = cache_folder().joinpath(*place)
        if path.read_bytes() == source.encode():
            return str(path)
    except OSError:
        pass
    written = write(source.encode(), *place)
    return f"<{name}>" if written is None else str(written)


def _executed(source: str, name: str, file: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module  # Numba looks there when it loads machine code
    try:
        exec(compile(source, file, "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module


_lock = threading.Lock()
