"""Numba with pareo's options: no GIL, vectorised loops, machine code on disk (see `cache`)."""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numba
from numba.core import event, types
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from pareo.backends.compiled.runtime.cache import Compiler, OverloadCache

# Sums may be reordered, which vectorised loops need, and a product and a sum may become one
# instruction. NaN and infinity keep their IEEE meaning, so other liberties are not allowed.
FASTMATH = {"reassoc", "contract", "nsz"}


def jit(function: Callable[..., Any]) -> Any:
    """Compile a function at its first call for each signature, or load it from disk."""
    return _compiled(function, FASTMATH)


def jit_in_order(function: Callable[..., Any]) -> Any:
    """The same, with sums in the order written; otherwise LLVM may break up multiply-adds."""
    return _compiled(function, FASTMATH - {"reassoc"})


def jit_strict(function: Callable[..., Any]) -> Any:
    """The same, with each operation rounded as written, for functions that need exact bits."""
    return _compiled(function, False)


def _compiled(function: Callable[..., Any], fastmath: set[str] | bool) -> Any:
    options: Any = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
    made: Any = numba.njit(pipeline_class=Compiler, **options)(function)
    made._cache = OverloadCache(function)
    return made


def c_function(dtype: str) -> Callable[[Callable[..., None]], int]:
    """Compile function(pointers, low, high) as a C function immediately; return its address.

    `pointers` point to arrays of one dtype.
    """
    numbers = types.CPointer(getattr(types, dtype))
    signature = types.void(types.CPointer(numbers), types.int64, types.int64)

    def compiled(function: Callable[..., None]) -> int:
        made: Any = CFunc(function, (signature.args, signature.return_type), {}, {}, Compiler)
        made._cache = OverloadCache(function)
        made.compile()
        _alive.append(made)
        return int(made.address)

    return compiled


_alive: list[Any] = []  # machine code is freed with these objects


def llvm_intrinsic(function: Callable[..., Any]) -> Any:
    """Numba's `intrinsic`: the function emits LLVM instructions in place of its calls."""
    return intrinsic(function)


GENERATED = "pareo_generated_"  # how the names of modules start that are written here


class _Announcer(event.Listener):
    """Reports what is being compiled, and how long it seconds, if stderr is a terminal."""

    def __init__(self) -> None:
        self.depth = 0
        self.started = 0.0

    def on_start(self, compilation: Any) -> None:
        self.depth += 1
        if self.depth == 1:
            self.started = time.perf_counter()
            self._say(compilation, "pareo: compiling {name} ...", end=" ")

    def on_end(self, compilation: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            seconds = time.perf_counter() - self.started
            self._say(compilation, f"{seconds:.1f} s", end="\n")

    def _say(self, compilation: Any, text: str, end: str) -> None:
        function = compilation.data["dispatcher"].py_func
        is_visible = sys.stderr.isatty() or os.environ.get("PAREO_VERBOSE")
        package, _, family = function.__module__.rpartition(".")
        if function.__module__.startswith(GENERATED):
            package, family = "pareo", "generated"
        if is_visible and package.partition(".")[0] == "pareo":
            name = f"{family}.{function.__name__.lstrip('_')}"
            print(text.format(name=name), file=sys.stderr, end=end, flush=True)


event.register("numba:compile", _Announcer())
