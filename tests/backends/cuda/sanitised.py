"""Runs the tests of the cuda device without CuPy's memory pool, for NVIDIA's compute-sanitizer.

    compute-sanitizer --tool memcheck  python tests/backends/cuda/sanitised.py
    compute-sanitizer --tool racecheck python tests/backends/cuda/sanitised.py

Without the pool every array is an allocation of its own, so that a step beyond its end is seen.
"""

import sys
from pathlib import Path

import pytest

FILES = ("sizes", "graph", "training")


def main() -> int:
    import cupy

    cupy.cuda.set_allocator(None)
    files = [str(Path(__file__).with_name(f"test_{name}.py")) for name in FILES]
    return pytest.main(["-q", "-p", "no:cacheprovider", *files, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
