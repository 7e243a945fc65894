"""Modules of generated source; a readable copy is stored beside their machine code."""

import hashlib
import os
import sys
import threading
from types import ModuleType

from pareo.backends.compiled.runtime.cache import cache_path
from pareo.cache import cache_folder, write


def generated_module(source: str) -> ModuleType:
    """The module of a source text, which is executed only once."""
    name = f"sized_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    with _lock:
        module = f"pareo_generated_{name}"
        if module not in sys.modules:
            sys.modules[module] = _executed(source, module, _file(source, f"{name}.py"))
        return sys.modules[module]


def _file(source: str, name: str) -> str:
    """The file with the text, which is written if it has another; a name if it cannot be written.

    The file is never executed, so damage to it does no harm.
    """
    place = *cache_path(), "generated", name
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
    sys.modules[name] = module  # where Numba looks when it loads machine code
    try:
        exec(compile(source, file, "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module


_lock = threading.Lock()
if hasattr(os, "register_at_fork"):  # a thread that had it does not exist in the child
    os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
