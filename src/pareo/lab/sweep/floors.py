"""The floor beneath a cell: its FLOPs at the measured peak, or its least bytes."""

from typing import Any


def floor(result: dict[str, Any], contestant: str, batch: int) -> float | None:
    """The least seconds of a step (a whole batch); None where a ceiling is unknown."""
    place = next(c["place"] for c in result["cells"] if c["contestant"] == contestant)
    limits = next((c for c in result["ceilings"] if c["place"] == place), None)
    work = next(one for one in result["work"] if one["batch"] == batch)
    if limits is None or not limits["peak_flops"] or not limits["bandwidth"]:
        return None
    arithmetic = work["flops"] / limits["peak_flops"]
    return float(max(arithmetic, work["least_bytes"] / limits["bandwidth"]))
