"""A made-up result of an arena, for tests of what reads one."""

from typing import Any

from race_result import header, row

from pareo.lab.arena.result import ArenaResult
from pareo.lab.experiment import results

# Seconds of pareo and of each peer, by network; None was refused.
TIMES: tuple[tuple[float | None, ...], ...] = (
    (1.0, 2.0, 3.0), (1.0, 4.0, None), (2.0, 1.0, 1.5), (None, 1.0, 1.0), (1.0, None, None),
)  # fmt: skip
NAMES = ("pareo-compiled", "torch-best", "jax-best")


def arena(data: dict[str, Any] | None = None) -> ArenaResult:
    """The result that a file with these data holds."""
    found = results.checked(made() if data is None else data, "a made-up arena")
    assert isinstance(found, ArenaResult)
    return found


def made(times: tuple[tuple[float | None, ...], ...] = TIMES) -> dict[str, Any]:
    """An arena, as a file has it."""
    return {
        **header("arena", "arena of seed 0: mlp, cnn"),
        "settings": {
            "seed": 0,
            "first": 0,
            "count": len(times),
            "kinds": ["mlp", "cnn"],
            "batch": "1..512",
            "contestants": list(NAMES),
            "precision": "float32",
            "threads": 2,
            "seconds": 10.0,
            "patience": 120.0,
        },
        "bouts": [_bout(index, seconds) for index, seconds in enumerate(times)],
    }


def _bout(index: int, seconds: tuple[float | None, ...]) -> dict[str, Any]:
    rows = []
    for name, each in zip(NAMES, seconds, strict=True):
        if each is None:
            rows.append(row(name, [], None, "refused", "0.w moved 1.0e-02 off"))
        else:
            rows.append(row(name, [each * (1 + 0.001 * (n % 3)) for n in range(20)], 1 << 20))
    spent = {
        "layer": "layer 0, Conv 4 @ 3x3",
        "share": 0.7,
        "operator": "conv_weight_gradient",
        "shape": "2x1x8x8, 2x4x6x6 -> 4x1x3x3",
    }
    return {
        "index": index,
        "kind": ("mlp", "cnn")[index % 2],
        "layers": "1x8x8: Conv(4, 3), ReLU, Flatten, Dense(10)",
        "batch": 2,
        "parameters": 1490,
        "flops": 10**6 * (index + 1),
        "images": 64,
        "rows": rows,
        "spent": [spent] if seconds[0] else [],
        "note": "",
    }
