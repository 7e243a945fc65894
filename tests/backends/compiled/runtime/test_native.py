"""Functions of LLVM instructions in real processes: compiled once, found again, mended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Two functions call one written in LLVM instructions; the second is compiled from the first's code.
SCRIPT = """
import numpy as np
from llvmlite import ir
from numba.core import types
from pareo.backends.compiled.runtime import native
from pareo.backends.compiled.runtime.jit import jit, llvm_intrinsic

@llvm_intrinsic
def doubled(typingctx, address):
    def write(builder, arguments):
        print("written")
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        builder.store(builder.mul(builder.load(place), ir.IntType(64)(2)), place)

    def generate(context, builder, signature, arguments):
        native.call(builder, "doubled", arguments, write)
        return context.get_dummy_value()

    return types.void(types.int64), generate

@jit
def twice(a):
    doubled(a.ctypes.data)

@jit
def often(a):
    twice(a)
    doubled(a.ctypes.data)

a = np.array([3])
often(a)
print(a[0])
"""


def run(folder: Path) -> list[str]:
    """What the script prints in a process of its own."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PAREO_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def machine_code(folder: Path) -> list[Path]:
    return sorted((folder / "cache").rglob("pareo_native_*.obj"))


def test_it_is_written_once_for_all_callers_and_processes(tmp_path: Path) -> None:
    assert run(tmp_path) == ["written", "12"]
    assert len(machine_code(tmp_path)) == 1
    assert run(tmp_path) == ["12"]


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"damaged")])
def test_callers_whose_function_is_gone_are_compiled_again(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    run(tmp_path)
    damage(machine_code(tmp_path)[0])
    assert run(tmp_path) == ["written", "12"]
    assert run(tmp_path) == ["12"]


def test_without_a_folder_to_write_it_is_compiled_in_memory(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    assert run(tmp_path) == ["written", "12"]
    assert run(tmp_path) == ["written", "12"]
