"""The question of a sweep, answered from what was measured: which batch size, and why."""

import math
from dataclasses import dataclass
from typing import Any

from pareo.lab.experiment.statistics import compare
from pareo.lab.formatting import digits, few_digits
from pareo.lab.formatting import seconds as written
from pareo.lab.sweep.cells import MEMORY, MISSING, WAITING, Cell, from_dict

NOTHING = 0.02  # less than this share is no gain
WORSE = ("faster", "cannot tell", "slower")  # what is said of pareo, the best first
UNTIMED = {MEMORY: "do not fit", WAITING: "were not tried", MISSING: "were not tried"}
HOLDS = {
    "arithmetic": "its FLOPs alone take {share:.0%} of a step at the measured peak of products",
    "bandwidth": "the bytes that its instructions move take {share:.0%} of a step at the measured "
    "bandwidth",
    "overhead": "{share:.0%} of a step is neither FLOPs at the measured peak nor bytes at the "
    "measured bandwidth",
}


@dataclass(frozen=True)
class Answer:
    """The best cell; `why` is arithmetic, bandwidth, overhead or memory, `shares` of its step."""

    contestant: str
    batch: int
    seconds_per_image: float
    why: str
    shares: dict[str, float]
    sentence: str


def answer(result: dict[str, Any]) -> Answer | None:
    """The smallest batch size that is as fast as any, for the fastest contestant; None without."""
    # Of sweeps that are shown together the later ones come last.
    cells = list({(c["contestant"], c["batch"]): from_dict(c) for c in result["cells"]}.values())
    timed = [cell for cell in cells if cell.seconds_per_batch]
    if not timed:
        return None
    fastest = min(timed, key=lambda cell: cell.median)
    own = sorted((c for c in timed if c.contestant == fastest.contestant), key=lambda c: c.batch)
    best = next(cell for cell in own if cell.median <= (1 + NOTHING) * fastest.median)
    shares = shares_of(result, best)
    why = max(shares, key=shares.__getitem__) if shares else "unknown"
    fell = _fell(own, best)
    larger = sorted(
        (c for c in cells if c.contestant == best.contestant and c.batch > best.batch),
        key=lambda cell: cell.batch,
    )
    if fell > NOTHING and larger and larger[0].status == MEMORY:
        why = "memory"
    return Answer(
        best.contestant, best.batch, best.median, why, shares,
        _sentence(own, best, why, shares, fell, larger),
    )  # fmt: skip


def ahead(result: dict[str, Any]) -> str:
    """At which batch sizes pareo is faster than its fastest peer, and at which not; may be empty.

    Two cells are told apart as two rows of a race are: round by round, at 99 %. Of several sweeps
    that are shown together, each has a say, and the least good one counts.
    """
    timed = [cell for cell in result["cells"] if cell["seconds_per_batch"]]
    found: dict[int, list[str]] = {}
    for batch, sweep in sorted({(cell["batch"], cell.get("sweep", 0)) for cell in timed}):
        here = [
            from_dict(cell)
            for cell in timed
            if (cell["batch"], cell.get("sweep", 0)) == (batch, sweep)
        ]
        if word := _verdict(here):
            found.setdefault(batch, []).append(word)
    words: dict[str, list[str]] = {}
    for batch, several in found.items():
        words.setdefault(max(several, key=WORSE.index), []).append(str(batch))
    said = [f"{word} at batch {', '.join(batches)}" for word, batches in words.items()]
    return f"pareo against its fastest peer: {'; '.join(said)}." if said else ""


def _verdict(here: list[Cell]) -> str:
    """What can be said of the fastest of pareo's beside its fastest peer; nothing without one."""
    ours = [cell for cell in here if cell.contestant.startswith("pareo")]
    peers = [cell for cell in here if not cell.contestant.startswith("pareo")]
    if not ours or not peers:
        return ""
    one, other = (min(side, key=lambda cell: cell.median) for side in (ours, peers))
    together = (one.began, one.rounds) == (other.began, other.rounds)
    return compare(one.seconds_per_batch, other.seconds_per_batch, together).word


def limits_title(result: dict[str, Any]) -> str:
    """Under which limit, or which limits, the largest batches are."""
    said = " and ".join(known_limits(result))
    return f"The largest batch{f' under {said} GB' if said else ''}"


def known_limits(result: dict[str, Any]) -> dict[str, int]:
    """The limits of memory that were searched under, or are asked for, by their GB in words.

    Those that read the same are one: what is left of a card differs by a piece or two.

    >>> searched = [{"limit": 3_998_351_360}, {"limit": 3_996_254_208}, {"limit": 2 * 10**9}]
    >>> known_limits({"limits": searched, "settings": {"memory_limit": 4 * 10**9}})
    {'2': 2000000000, '4': 3998351360}
    """
    asked = result["settings"].get("memory_limit")
    sizes = [one["limit"] for one in result["limits"] if one["limit"]] or ([asked] if asked else [])
    return {f"{size / 1e9:.3g}": size for size in sorted(sizes)}


def shares_of(result: dict[str, Any], cell: Cell) -> dict[str, float]:
    """Which share of a cell's step its FLOPs take at the measured peak, and its bytes likewise.

    The two may overlap; overhead is what neither of them explains.
    """
    place = next(c["place"] for c in result["cells"] if c["contestant"] == cell.contestant)
    limits: dict[str, Any] = next((c for c in result["ceilings"] if c["place"] == place), {})
    peak, bandwidth = limits.get("peak_flops"), limits.get("bandwidth")
    if not peak or not bandwidth:
        return {}
    work = {one["batch"]: one for one in result["work"]}
    step = cell.median * cell.batch
    found = {
        "arithmetic": work[cell.batch]["flops"] / peak / step,
        # Others may fuse more than pareo does on a CPU, or keep less: the whole step at most.
        "bandwidth": min(1.0, work[cell.batch]["moved_bytes"] / bandwidth / step),
    }
    found["overhead"] = max(0.0, 1 - max(found.values()))
    return found


def _fell(own: list[Cell], best: Cell) -> float:
    """By which share the time per image fell from the batch size before the best one."""
    before = [cell for cell in own if cell.batch < best.batch]
    return 1 - best.median / before[-1].median if before else 0.0


def _sentence(
    own: list[Cell],
    best: Cell,
    why: str,
    shares: dict[str, float],
    fell: float,
    larger: list[Cell],
) -> str:
    seconds = best.median
    said = (
        f"The best batch size here is {best.batch}, with {best.contestant}: {written(seconds)} "
        f"per image ({digits(1 / seconds)} images/s)"
    )
    if own[0] is not best:
        said += f", {few_digits(own[0].median / seconds)} times as fast as at batch {own[0].batch}"
    if why == "memory":
        return (
            f"{said}; memory ends it: batch {larger[0].batch} does not fit, though the last step "
            f"up still gained {fell:.0%}."
        )
    if why in HOLDS:
        said += f"; {why} holds it: {HOLDS[why].format(share=shares[why])}"
        if shares[why] > 1:
            said += (
                " (those of plain convolutions are counted, of which Winograd's filtering needs "
                "fewer; or the peak was measured too low)"
            )
    if any(cell.seconds_per_batch for cell in larger):
        return f"{said}, and larger batches gain less than {NOTHING:.0%}."
    untimed = UNTIMED.get(larger[0].status, "failed") if larger else "were not tried"
    if math.isfinite(fell) and fell > NOTHING:
        return f"{said}; larger ones {untimed}, and the last step up still gained {fell:.0%}."
    return f"{said}; larger ones {untimed}." if larger else f"{said}."
