"""Numba with pareo's options: no GIL, vectorised loops, machine code on disk (see `cache`)."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import numba
from numba.core import event, types
from numba.core.ccallback import CFunc
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic

from pareo.backends.compiled.runtime import recording
from pareo.backends.compiled.runtime.cache import Compiler, OverloadCache
from pareo.backends.compiled.runtime.call_words import Unsupported, function_thunk, words_of

# Sums may be reordered, which vectorised loops need, and a product and a sum may become one
# instruction. NaN and infinity keep their IEEE meaning, so other liberties are not allowed.
FASTMATH = {"reassoc", "contract", "nsz"}

_functions: WeakSet[Any] = WeakSet()  # all that `jit` and the like have made
_lock = threading.Lock()
if hasattr(os, "register_at_fork"):  # a thread that had it does not exist in the child
    os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]


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
    with _lock:
        _functions.add(made)
        if recording.is_any():
            made.__class__ = _Recorded
    return made


class _Recorded(CPUDispatcher):
    """A compiled function while some thread records (see `recording`).

    Functions have this class only then, because a call takes half a microsecond longer.
    """

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        result = super().__call__(*arguments, **named)
        active = recording.active()
        if active is not None:
            try:
                operation = self._operation(arguments, result)
            except Unsupported as error:
                active.refuse(f"{self.py_func.__name__} has {error}")
            else:
                if operation is not None:
                    active.note(operation)
        return result

    def _operation(self, arguments: tuple[Any, ...], result: Any) -> recording.Operation | None:
        """The call, to be repeated; None for one that only returns something."""
        kinds = tuple(self.typeof_pyval(argument) for argument in arguments)
        compiled: Any = self.overloads.get(kinds)
        if compiled is None:
            raise Unsupported("arguments that are not given by position")
        if compiled.signature.return_type != types.none:
            return None
        return operation_of(compiled, kinds, arguments, None)


def operation_of(
    compiled: Any, kinds: tuple[types.Type, ...], arguments: tuple[Any, ...], expected: bool | None
) -> recording.Operation:
    """A call of a compiled function with these arguments."""
    function = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    thunk = function_thunk(kinds, compiled.signature.return_type)
    held = (*arguments, compiled.library)
    return recording.Operation(function, thunk, words_of(kinds, arguments), expected, held)


@contextmanager
def recorded() -> Iterator[recording.Recording | None]:
    """A scope in which this thread records calls; None where another thread does, which is first.

    Only functions that return nothing are recorded. Others answer questions, whose answers must
    follow from shapes alone (or else see `holds`).
    """
    with recording.begun() as begun:
        if begun is None:
            yield None
            return
        _set_class(_Recorded)
        try:
            yield begun
        finally:
            _set_class(CPUDispatcher)


def _set_class(kind: type) -> None:
    with _lock:  # another thread may be making functions
        for function in _functions:
            function.__class__ = kind


def holds(function: Any, *arguments: Any) -> bool:
    """The truth that a compiled function returns; a kernel is only repeated if it is the same.

    It asks before it changes an operand, because otherwise it is run again from its beginning.
    """
    truth = bool(function(*arguments))
    active = recording.active()
    if active is not None:
        kinds = tuple(function.typeof_pyval(argument) for argument in arguments)
        active.note(operation_of(function.overloads[kinds], kinds, arguments, truth))
    return truth


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
