"""Where machine code and generated modules lie in the cache directory."""

import hashlib
import sys
from functools import cache
from pathlib import Path

import llvmlite
import numba


@cache
def cache_path() -> tuple[str, str]:
    """The path of machine code and generated modules in the cache directory."""
    versions = numba.__version__, llvmlite.__version__, sys.version
    digest = hashlib.sha256(repr(versions).encode())
    compiled = Path(__file__).parents[1]
    constants = compiled.parents[1] / "operators" / "normalisation.py"  # in the dropout loop
    for source in (constants, *sorted(compiled.rglob("*.py"))):
        digest.update(source.read_bytes())
    return "compiled", digest.hexdigest()[:16]
