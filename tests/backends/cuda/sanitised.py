"""Runs the tests of the cuda device without CuPy's memory pool, for NVIDIA's compute-sanitizer.

    compute-sanitizer --tool memcheck  python tests/backends/cuda/sanitised.py
    compute-sanitizer --tool racecheck python tests/backends/cuda/sanitised.py

Without the pool every array is a separate allocation, so that an access beyond its end is found.
Kernels are compiled so that every thread arrives at barriers itself: racecheck does not know of
threads that another one arrives for. The whole run takes long under racecheck; the kernels with
such barriers are those of `-k "few_channels or strips or warpgroup"`.
"""

import os
import sys
import tempfile
from pathlib import Path

import pytest

FILES = ("kernels/test_sizes", "runtime/test_graph", "test_training", "nhwc/test_instructions")


def main() -> int:
    import cupy

    from pareo.backends.cuda.runtime import source

    cupy.cuda.set_allocator(None)
    plain = source._include_paths
    source._include_paths = lambda: (*plain(), *source.defines(EVERY_THREAD_ARRIVES="1"))
    files = [str(Path(__file__).with_name(f"{name}.py")) for name in FILES]
    with tempfile.TemporaryDirectory() as fresh:
        os.environ["PAREO_CACHE_DIR"] = (
            fresh  # the cached machine code was compiled without this option
        )
        return pytest.main(["-q", "-p", "no:cacheprovider", *files, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
