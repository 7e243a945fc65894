"""Numba as pareo uses it: no GIL, loops that vectorise, machine code kept on disk.

The cache lies in the user's cache folder, one folder for each state of this backend's sources and
each version of Numba; inside, Numba itself tells CPUs and signatures apart.
"""

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from numba.core import config, event, types
from numba.extending import intrinsic

# Sums may be taken in another order, which vectorised loops need, and products and sums may become
# one instruction. NaN and infinity keep their IEEE meaning, so the other liberties are not taken.
FASTMATH = {"reassoc", "contract", "nsz"}


def cache_folder() -> Path:
    """Where machine code is kept: $PAREO_CACHE_DIR, or the user's own cache folder."""
    chosen = os.environ.get("PAREO_CACHE_DIR")
    if chosen:
        root = Path(chosen)
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pareo"
    digest = hashlib.sha256(numba.__version__.encode())
    package = Path(__file__).parents[2]
    constants = package / "operators" / "normalisation.py"  # compiled into the dropout loop
    for source in (constants, *sorted(Path(__file__).parent.glob("*.py"))):
        digest.update(source.read_bytes())
    return root / "compiled" / digest.hexdigest()[:16]


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
    with _our_cache():
        return numba.njit(nogil=True, fastmath=fastmath, error_model="numpy", cache=True)(function)


def native(kind: str) -> Callable[[Callable[..., None]], int]:
    """Make function(places, low, high) one of C's, now, and give its address.

    `places` are pointers to arrays of one kind of number.
    """
    numbers = types.CPointer(getattr(types, kind))
    signature = types.void(types.CPointer(numbers), types.int64, types.int64)

    def compiled(function: Callable[..., None]) -> int:
        with _our_cache():
            made: Any = numba.cfunc(signature, cache=True)(function)
        _kept.append(made)
        return int(made.address)

    return compiled


_kept: list[Any] = []  # machine code goes with the object that brought it


@contextmanager
def _our_cache() -> Iterator[None]:
    """Numba reads this setting when a function is decorated; other users of Numba keep theirs."""
    before = vars(config)["CACHE_DIR"]
    vars(config)["CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        vars(config)["CACHE_DIR"] = before


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
            self._say(happening, f"{took:.1f} s, kept for next time", end="\n")

    def _say(self, happening: Any, text: str, end: str) -> None:
        function = happening.data["dispatcher"].py_func
        waits = sys.stderr.isatty() or os.environ.get("PAREO_VERBOSE")
        if waits and function.__module__.startswith("pareo."):
            family = function.__module__.rpartition(".")[2]
            name = f"{family}.{function.__name__.lstrip('_')}"
            print(text.format(name=name), file=sys.stderr, end=end, flush=True)


folder = cache_folder()
event.register("numba:compile", _Announcer())
