"""Functions written as LLVM instructions, compiled once and called by name from compiled code.

Numba links whatever a function calls into its module, and compiles it again for every caller. The
functions here are declared there only. Their machine code lies on disk under their names, like that
of `cache`: whoever loads a caller loads them first (see `load`).
"""

import hashlib
import pickle
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from pareo.backends.compiled.runtime.cache_path import cache_path
from pareo.cache import read_checked, write_checked

PREFIX = "pareo_native_"
_NAMES = re.compile(f"{PREFIX}[0-9a-f]{{16}}".encode())
_loaded: dict[str, Any] = {}  # libraries by name; machine code is freed with them

Write = Callable[[ir.IRBuilder, Sequence[ir.Value]], ir.Value | None]  # the result, if any


def call(
    builder: ir.IRBuilder, description: str, arguments: Sequence[ir.Value], write: Write
) -> None:
    """Call the function of this description, which `write` writes if it is not on disk.

    The description tells it from all others, and includes all that its instructions depend on.
    """
    name = _name(description)
    kind = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    if not _load(name):
        _compile(name, kind, write)
    builder.call(function, arguments)


def address(description: str, kind: ir.FunctionType, write: Write) -> int:
    """The address of the function of this description, of any kind, for calls by address."""
    name = _name(description)
    if not _load(name):
        _compile(name, kind, write)
    return int(_loaded[name].get_pointer_to_function(name))


def load(machine_code: bytes) -> bool:
    """Load the functions that machine code calls; False if one is not on disk any more."""
    return all(_load(name.decode()) for name in set(_NAMES.findall(machine_code)))


@cache
def _name(description: str) -> str:
    return PREFIX + hashlib.sha256(repr((description, cache_path())).encode()).hexdigest()[:16]


def _place(name: str) -> tuple[str, ...]:
    codegen = cpu_target.target_context.codegen()
    key = hashlib.sha256(repr(codegen.magic_tuple()).encode()).hexdigest()[:16]
    return *cache_path(), f"{name}-{key}.obj"


@global_compiler_lock
def _load(name: str) -> bool:
    """Make a function known to the linker; False if it must be compiled."""
    if name in _loaded:
        return True
    content = read_checked(*_place(name))
    if content is None:
        return False
    codegen = cpu_target.target_context.codegen()
    _publish(name, codegen.unserialize_library(pickle.loads(content)))
    return True


@global_compiler_lock
def _compile(name: str, kind: ir.FunctionType, write: Write) -> None:
    library = cpu_target.target_context.codegen().create_library(name)
    library.enable_object_caching()
    module = library.create_ir_module(name)
    function = ir.Function(module, kind, name)
    body = ir.IRBuilder(function.append_basic_block("entry"))
    result = write(body, function.args)
    body.ret_void() if result is None else body.ret(result)
    library.add_ir_module(module)
    library.finalize()
    _publish(name, library)
    write_checked(pickle.dumps(library.serialize_using_object_code()), *_place(name))


def _publish(name: str, library: Any) -> None:
    llvm.add_symbol(name, library.get_pointer_to_function(name))
    _loaded[name] = library
