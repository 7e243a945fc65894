"""Machine code on disk, which does not depend on what else a process has loaded.

Numba links the functions that a function calls into its module, where they are optimised again, and
leaves them visible. Of all copies in a process, the linker then takes the first that was loaded.
In the process that compiles, this is the callee's own; in a later process, it is the caller's copy.
The two may round differently. So here every module makes its copies private.

There is a file for each function, signature and CPU, in a directory for each version of Numba,
LLVM, Python, and this backend's sources.
"""

import hashlib
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from llvmlite.binding import Linkage
from numba.core import compiler
from numba.core.codegen import JITCodeLibrary
from numba.core.serialize import dumps

from pareo.backends.compiled.runtime import native
from pareo.backends.compiled.runtime.cache_path import cache_path
from pareo.cache import read_checked, write_checked


class OverloadCache:
    """The machine code of one function on disk, with the interface that Numba expects."""

    def __init__(self, function: Callable[..., Any]) -> None:
        code = function.__code__
        self._name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
        self._source_digest = _source_digest(code.co_filename)
        self._key = repr((
            function.__module__, function.__qualname__, code.co_firstlineno, self._source_digest,
            code.co_code, dumps(cells) if cells else b"",
        ))  # fmt: skip
        self.cache_path = None  # an attribute that Numba reports

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The compiled function; None if it must be compiled."""
        context.refresh()
        place = self._place(signature, context.codegen())
        content = read_checked(*place) if self._source_digest else None
        if content is None or not native.load(content):
            return None
        try:
            return compiler.CompileResult._rebuild(context, *pickle.loads(content))
        except ModuleNotFoundError:  # a generated module that is not among the latest any more
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Save a compiled function, unless it contains addresses of this process."""
        if self._source_digest and not compiled.library.has_dynamic_globals:
            place = self._place(signature, compiled.library.codegen)
            write_checked(dumps(compiled._reduce()), *place)

    def _place(self, signature: Any, codegen: Any) -> tuple[str, ...]:
        key = repr((self._key, str(signature), codegen.magic_tuple()))
        name = self._name.replace("<", "").replace(">", "")
        return *cache_path(), f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.nbc"


@cache
def _source_digest(path: str) -> str:
    """A digest of a source file, whose other functions and constants may be compiled in.

    It is empty if the file cannot be read; then machine code is not saved, because it could not be
    matched with its source.
    """
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


class Library(JITCodeLibrary):
    """A module of machine code of which only its own function is visible to others."""

    def _finalize_final_module(self) -> None:
        visible = self._final_module.clone()  # for linking this module into others
        for function in self._final_module.functions:
            if function.linkage == Linkage.linkonce_odr and not function.is_declaration:
                function.linkage = Linkage.internal
        super()._finalize_final_module()
        self._final_module = visible


class Compiler(compiler.Compiler):
    """Numba's compiler, with such a library."""

    def compile_extra(self, func: Any) -> Any:
        library = Library(self.state.targetctx.codegen(), func.__qualname__)
        library.enable_object_caching()
        self.state.library = library
        found = super().compile_extra(func)
        # The types of all variables are for inspection only; they take much memory, and would keep
        # the function's module alive.
        return found._replace(type_annotation="")
