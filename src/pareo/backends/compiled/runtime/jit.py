"""Numba as pareo uses it: no GIL, loops that vectorise, machine code kept on disk (`store`)."""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numba
from numba.core import event, types
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from pareo.backends.compiled.runtime.cache import Compiler, Store

# Sums may be taken in another order, which vectorised loops need, and products and sums may become
# one instruction. NaN and infinity keep their IEEE meaning, so the other liberties are not taken.
FASTMATH = {"reassoc", "contract", "nsz"}


def jit(function: Callable[..., Any]) -> Any:
    """Compile a function at its first call for each signature, or load what is on disk."""
    return _compiled(function, FASTMATH)


def jit_in_order(function: Callable[..., Any]) -> Any:
    """Likewise, with sums in the order written: left to itself, LLVM breaks up multiply-adds."""
    return _compiled(function, FASTMATH - {"reassoc"})


def jit_as_written(function: Callable[..., Any]) -> Any:
    """Likewise, each operation rounded as it stands there: for functions true to the last bit."""
    return _compiled(function, False)


def _compiled(function: Callable[..., Any], fastmath: set[str] | bool) -> Any:
    options: Any = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
    made: Any = numba.njit(pipeline_class=Compiler, **options)(function)
    made._cache = Store(function)
    return made


def native(kind: str) -> Callable[[Callable[..., None]], int]:
    """Make function(places, low, high) one of C's, now, and give its address.

    `places` are pointers to arrays of one kind of number.
    """
    numbers = types.CPointer(getattr(types, kind))
    signature = types.void(types.CPointer(numbers), types.int64, types.int64)

    def compiled(function: Callable[..., None]) -> int:
        made: Any = CFunc(function, (signature.args, signature.return_type), {}, {}, Compiler)
        made._cache = Store(function)
        made.compile()
        _kept.append(made)
        return int(made.address)

    return compiled


_kept: list[Any] = []  # machine code goes with the object that brought it


def emits(function: Callable[..., Any]) -> Any:
    """Numba's `intrinsic`: a function that writes LLVM's instructions instead of being compiled."""
    return intrinsic(function)


class _Announcer(event.Listener):
    """Tells a person who waits what is being compiled and how long it took; a pipe gets nothing."""

    def __init__(self) -> None:
        self.depth = 0
        self.started = 0.0

    def on_start(self, happening: Any) -> None:
        self.depth += 1
        if self.depth == 1:
            self.started = time.perf_counter()
            self._say(happening, "pareo: compiling {name} ...", end=" ")

    def on_end(self, happening: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            took = time.perf_counter() - self.started
            self._say(happening, f"{took:.1f} s", end="\n")

    def _say(self, happening: Any, text: str, end: str) -> None:
        function = happening.data["dispatcher"].py_func
        waits = sys.stderr.isatty() or os.environ.get("PAREO_VERBOSE")
        if waits and function.__module__.startswith("pareo."):
            family = function.__module__.rpartition(".")[2]
            name = f"{family}.{function.__name__.lstrip('_')}"
            print(text.format(name=name), file=sys.stderr, end=end, flush=True)


event.register("numba:compile", _Announcer())
