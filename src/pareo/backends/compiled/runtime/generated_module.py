"""Modules of generated source; a readable copy is stored beside their machine code.

Only the modules that were asked for last are kept; another lives as long as somebody holds it. So
hold the module, not only its functions: when it goes, its names are cleared. Otherwise Numba, which
knows its functions, and the functions, which know its names, would keep each other alive. Numba
never frees the machine code itself, which is a small part of the memory.
"""

import hashlib
import os
import sys
import threading
import weakref
from types import ModuleType

from pareo.backends.compiled.runtime.cache_path import cache_path
from pareo.backends.compiled.runtime.jit import GENERATED
from pareo.cache import cache_folder, write

KEPT = 32  # modules; each takes about 1 MB if it was loaded from disk, and 5 MB if it was compiled


def generated_module(source: str) -> ModuleType:
    """The module of a source text; it is executed again only if it was not kept."""
    name = f"sized_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    with _lock:
        module = f"{GENERATED}{name}"
        if module not in sys.modules:
            sys.modules[module] = _executed(source, module, _file(source, f"{name}.py"))
        _latest.pop(module, None)
        _latest[module] = None
        for old in list(_latest)[:-KEPT]:
            del _latest[old]
            sys.modules.pop(old, None)
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
    weakref.finalize(module, vars(module).clear).atexit = False
    try:
        exec(compile(source, file, "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module


_latest: dict[str, None] = {}  # names, the one that was asked for last at the end
_lock = threading.Lock()
if hasattr(os, "register_at_fork"):  # a thread that had it does not exist in the child
    os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
