"""How far exp, sigmoid and tanh of the compiled device are off, in units in the last place.

    python tests/backends/compiled/runtime/function_errors.py

goes through all 2**32 float32 numbers, which takes a while; with a number behind it, through one in
so many. The tests go through a sample.
"""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo import Device, op

FUNCTIONS = {"exp": np.exp, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh}


@dataclass(frozen=True)
class Errors:
    """The largest errors found, and whether NaN and infinities are where they belong."""

    units: float  # in the last place, of results that are normal numbers
    at: float
    tiny: float  # of smaller results, as a number
    special: bool


def errors(name: str, inputs: Any, wider: Any) -> Errors:
    """The errors of a function on these inputs; `wider` is a dtype to compute the truth in."""
    with np.errstate(all="ignore"):
        exact = FUNCTIONS[name](inputs.astype(wider))
        rounded = exact.astype(inputs.dtype)
    with Device("compiled"):
        found = getattr(op, name)(inputs)
    infinite = np.isinf(rounded)
    special = np.array_equal(np.isnan(found), np.isnan(rounded))
    special = special and np.array_equal(found[infinite], rounded[infinite])
    finite = np.isfinite(rounded) & np.isfinite(found)
    special = special and np.array_equal(finite, np.isfinite(rounded))
    normal = finite & (np.abs(rounded) >= np.finfo(inputs.dtype).tiny)
    units = np.abs(found[normal] - exact[normal]) / np.spacing(np.abs(rounded[normal]))
    tiny = np.abs(found[finite & ~normal] - exact[finite & ~normal])
    worst = int(units.argmax()) if units.size else 0
    return Errors(
        float(units.max(initial=0)),
        float(inputs[normal][worst]) if units.size else 0.0,
        float(tiny.max(initial=0)),
        bool(special),
    )


def main(every: int = 1, step: int = 1 << 23) -> None:
    """Print the largest errors over every float32 number, or over one in so many."""
    for name in FUNCTIONS:
        worst, tiny, special = (0.0, 0.0), 0.0, True
        for start in range(0, 1 << 32, step * every):
            stop = min(start + step * every, 1 << 32)
            bits = np.arange(start, stop, every, dtype=np.uint64).astype(np.uint32)
            found = errors(name, bits.view(np.float32), np.float64)
            worst = max(worst, (found.units, found.at))
            tiny, special = max(tiny, found.tiny), special and found.special
        print(f"{name}: {worst[0]:.3f} ulp at {worst[1]!r}; below {tiny:.3g}; special {special}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
