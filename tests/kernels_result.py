"""A made-up result of `pareo kernels`, for tests of what reads one."""

from typing import Any

import race_result

from pareo.lab.experiment import results
from pareo.lab.kernels.result import KernelsResult


def kernel(
    name: str, kind: str, calls: float, seconds: float, flops: float | None
) -> dict[str, Any]:
    """One kernel of a profile."""
    return {"name": name, "kind": kind, "shape": "2x3 -> 2", "calls": calls, "seconds": seconds,
            "flops": flops}  # fmt: skip


PLAIN = (
    kernel("aten::mm", "gemm", 4, 0.6, 100.0),
    kernel("aten::add", "elementwise", 2, 0.36, None),
    kernel("(between operators)", "other", 0, 0.04, None),
)


def made(*rows: dict[str, Any], mode: str = "", batch: int = 8) -> dict[str, Any]:
    """One contestant whose step of a second has these kernels, as a file has it."""
    profile = {"instrument": "a clock", "mode": mode, "note": "", "steps": 3,
               "seconds": 1.0, "rows": [dict(row) for row in rows or PLAIN]}  # fmt: skip
    race = race_result.made()
    raced = {
        **race["rows"][0], "contestant": "torch", "samples": [1.0], "rounds": [1],
        "profiles": [profile],
    }  # fmt: skip
    return {
        **race, "kind": "kernels", "batch": batch, "images": batch, "flops": 110,
        "flops_by_kind": {"gemm": 100, "elementwise": 10}, "matrix_instructions": 4,
        "rows": [raced],
    }  # fmt: skip


def kernels(*rows: dict[str, Any], mode: str = "", batch: int = 8) -> KernelsResult:
    """The same, as it is read."""
    found = results.checked(made(*rows, mode=mode, batch=batch), "a made-up study")
    assert isinstance(found, KernelsResult)
    return found
