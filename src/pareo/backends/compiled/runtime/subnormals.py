"""Results that are subnormal numbers are 0 while a compiled program or a loop runs, on x86-64.

There a processor takes far longer for a multiply-add whose result is subnormal: the products of a
whole layer took fifty times as long. Gradients that vanish are such numbers before they are 0. Each
thread has a control register with a flag for this. Operands that are subnormal keep their values,
and operators that are called alone compute them, too. On Arm nothing is changed.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from llvmlite import ir
from numba.core import cgutils, types

from pareo.backends.compiled.runtime.jit import jit, llvm_intrinsic
from pareo.backends.compiled.runtime.registers import IS_X86

FLUSH_TO_ZERO = 1 << 15

P = ParamSpec("P")
R = TypeVar("R")


def flushed(function: Callable[P, R]) -> Callable[P, R]:
    """The function, in whose thread subnormal results are 0 while it runs.

    Threads that it starts, and workers to which it gives work, do the same.
    """
    if not IS_X86:
        return function

    @wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        before = _flush()
        try:
            return function(*args, **kwargs)
        finally:
            _restore(before)

    return inside


@jit
def _flush() -> int:
    """Set the flag; return the register as it was."""
    before = control()
    set_control(before | FLUSH_TO_ZERO)
    return before


@jit
def _restore(before: int) -> None:
    set_control(before)


def _call(builder: Any, name: str, place: Any) -> None:
    """Call one of LLVM's functions that move the control register, which take an address."""
    byte, module = ir.IntType(8).as_pointer(), builder.module
    kind = ir.FunctionType(ir.VoidType(), [byte])
    function = module.globals.get(name) or ir.Function(module, kind, name)
    builder.call(function, [builder.bitcast(place, byte)])


@llvm_intrinsic
def control(typingctx):  # type: ignore[no-untyped-def]
    """This thread's control register of floating-point arithmetic; 0 but on x86-64."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        if not IS_X86:
            return ir.IntType(64)(0)
        place = cgutils.alloca_once(builder, ir.IntType(32))
        _call(builder, "llvm.x86.sse.stmxcsr", place)
        return builder.zext(builder.load(place), ir.IntType(64))

    return types.int64(), generate


@llvm_intrinsic
def set_control(typingctx, value):  # type: ignore[no-untyped-def]
    """Set this thread's control register, or nothing but on x86-64."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        if IS_X86:
            place = cgutils.alloca_once(builder, ir.IntType(32))
            builder.store(builder.trunc(given[0], ir.IntType(32)), place)
            _call(builder, "llvm.x86.sse.ldmxcsr", place)
        return context.get_dummy_value()

    return types.void(types.int64), generate
