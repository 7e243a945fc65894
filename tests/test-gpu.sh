#!/bin/sh
# All tests that need an NVIDIA GPU, as `make test-gpu` runs them; without a GPU it says so and ends.
#
# It sets up .venv with the extra `cuda`. Where nothing can be installed, GPU_PYTHON names a Python
# that has CuPy and pytest, and carry/ holds what it lacks (`make carry`).
set -eu
cd "$(dirname "$0")/.."
python=${GPU_PYTHON:-}

count='
import ctypes
found = ctypes.c_int()
try:
    cuda = ctypes.CDLL("libcuda.so.1")
    failed = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(found))
except OSError:
    failed = True
raise SystemExit(0 if found.value and not failed else 1)
'
if ! "${python:-${PYTHON:-python3}}" -c "$count"; then
    echo "test-gpu: skipped, because this machine has no NVIDIA GPU with a driver"
    exit 0
fi

if [ -z "$python" ]; then
    make .venv/.ready
    .venv/bin/pip install --quiet --no-build-isolation -c constraints.txt -e '.[cuda]'
    python=.venv/bin/python
else
    for wheel in carry/*.whl; do
        [ ! -e "$wheel" ] || "$python" -m zipfile -e "$wheel" carry/unpacked
    done
    PYTHONPATH="$PWD/src:$PWD/carry/unpacked${PYTHONPATH:+:$PYTHONPATH}"
    export PYTHONPATH
    for module in pytest xdist pytest_timeout hypothesis cupy; do
        if ! "$python" -c "import $module" 2>/dev/null; then
            echo "test-gpu: $python has no module $module: install it, or run make carry" >&2
            exit 1
        fi
    done
fi

# More than twelve workers wait for each other on one GPU. The GPU machine's libraries may be others
# than those of constraints.txt, and warn of other things.
workers=$(nproc)
[ "$workers" -le 12 ] || workers=12
exec "$python" -m pytest -m gpu -n "$workers" -p no:benchmark -W ignore "$@"
