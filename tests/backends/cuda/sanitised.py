"""Runs the tests of the cuda device without CuPy's memory pool, for NVIDIA's compute-sanitizer.

    compute-sanitizer --tool memcheck  python tests/backends/cuda/sanitised.py
    compute-sanitizer --tool racecheck python tests/backends/cuda/sanitised.py

Without the pool every array is an allocation of its own, so that a step beyond its end is seen.
"""

import sys
from pathlib import Path

import cupy
import pytest

cupy.cuda.set_allocator(None)
here = Path(__file__).parent
files = [str(here / f"test_{name}.py") for name in ("sizes", "graph", "training")]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *files, *sys.argv[1:]]))
