"""Modules written with their sizes filled in, kept in the cache folder with their machine code."""

import hashlib
import importlib.util
import os
import sys
import threading
from typing import Any

from pareo.backends.compiled.jit import folder


def generated(source: str) -> Any:
    """The module of a source text, from its file in the cache folder."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    path = folder / "generated" / f"sized_{digest}.py"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.stem}.{os.getpid()}.{threading.get_ident()}")
        fresh.write_text(source)
        fresh.replace(path)
    name = f"pareo_generated_{path.stem}"
    with _lock:
        if name not in sys.modules:
            specification = importlib.util.spec_from_file_location(name, path)
            assert specification is not None
            assert specification.loader is not None
            module = importlib.util.module_from_spec(specification)
            sys.modules[name] = module  # Numba looks there when it loads machine code
            specification.loader.exec_module(module)
        return sys.modules[name]


_lock = threading.Lock()
