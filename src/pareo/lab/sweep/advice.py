"""The answer of a sweep, from what was measured: the best batch size, and why it is."""

import math
from dataclasses import dataclass

from pareo.lab.experiment.entry import fastest, ranked
from pareo.lab.formatting import digits, few_digits
from pareo.lab.formatting import seconds as written
from pareo.lab.sweep.result import Cell, SweepResult

NOTHING = 0.02  # less than this share is no gain
WORSE = ("faster", "cannot tell", "slower")  # verdicts on pareo, the best first
UNTIMED = {"memory": "do not fit", "waiting": "were not tried", "missing": "were not tried"}
LIMITS = {
    "arithmetic": "its FLOPs alone take {share:.0%} of a step at the measured peak of products",
    "bandwidth": "the bytes that its instructions move take {share:.0%} of a step at the measured "
    "bandwidth",
    "overhead": "{share:.0%} of a step is neither FLOPs at the measured peak nor bytes at the "
    "measured bandwidth",
}


@dataclass(frozen=True)
class Answer:
    """The best cell, and what limits it.

    why: arithmetic, bandwidth, overhead, memory or unknown. shares: of its step, by reason.
    """

    contestant: str
    batch: int
    seconds_per_image: float
    why: str
    shares: dict[str, float]
    sentence: str


def answer(result: SweepResult) -> Answer | None:
    """The smallest batch size that is as fast as any, for the fastest contestant.

    None where nothing was timed.
    """
    cells = result.latest
    timed = ranked(cells)
    if not timed:
        return None
    first = timed[0]
    own = sorted((c for c in timed if c.contestant == first.contestant), key=lambda c: c.batch)
    best = next(cell for cell in own if cell.median <= (1 + NOTHING) * first.median)
    shares = shares_of(result, best)
    why = max(shares, key=shares.__getitem__) if shares else "unknown"
    fell = _fell(own, best)
    larger = sorted(
        (c for c in cells if c.contestant == best.contestant and c.batch > best.batch),
        key=lambda cell: cell.batch,
    )
    if fell > NOTHING and larger and larger[0].status == "memory":
        why = "memory"
    return Answer(
        best.contestant, best.batch, best.median, why, shares,
        _sentence(own, best, why, shares, fell, larger),
    )  # fmt: skip


def ahead(result: SweepResult) -> str:
    """At which batch sizes pareo is faster than its fastest peer, and at which not; may be empty.

    Two cells are compared as two rows of a race are: round by round, at 99 %. Joined sweeps are
    compared within each, and the worst verdict counts.
    """
    found: dict[int, list[str]] = {}
    for batch, sweep in sorted({(cell.batch, cell.sweep) for cell in result.cells}):
        here = [c for c in result.cells if (c.batch, c.sweep) == (batch, sweep)]
        one, other = fastest(here, ours=True), fastest(here, ours=False)
        if one and other:
            found.setdefault(batch, []).append(one.compared_with(other).word)
    words: dict[str, list[str]] = {}
    for batch, several in found.items():
        words.setdefault(max(several, key=WORSE.index), []).append(str(batch))
    said = [f"{word} at batch {', '.join(batches)}" for word, batches in words.items()]
    return f"pareo against its fastest peer: {'; '.join(said)}." if said else ""


def limits_title(result: SweepResult) -> str:
    """The title of the largest batches: under which limits of memory they are."""
    said = " and ".join(known_limits(result))
    return f"The largest batch{f' under {said} GB' if said else ''}"


def known_limits(result: SweepResult) -> dict[str, int]:
    """The limits of memory that were searched under, or else asked for, in bytes by their GB.

    Those with the same GB are one: the free memory of a GPU differs by a few pieces.
    """
    asked = result.settings.memory_limit
    sizes = [one.limit for one in result.limits if one.limit] or ([asked] if asked else [])
    return {f"{size / 1e9:.3g}": size for size in sorted(sizes)}


def shares_of(result: SweepResult, cell: Cell) -> dict[str, float]:
    """The shares of a cell's step that its FLOPs and its bytes take at the measured rates.

    The two may overlap; overhead is what neither of them explains.
    """
    rates = result.rates(cell.place)
    if not rates:
        return {}
    work, step = result.work_of(cell.batch), cell.median * cell.batch
    found = {
        "arithmetic": work.flops / rates[0] / step,
        # Others may fuse more than pareo does on a CPU, or keep less: the whole step at most.
        "bandwidth": min(1.0, work.moved_bytes / rates[1] / step),
    }
    found["overhead"] = max(0.0, 1 - max(found.values()))
    return found


def _fell(own: list[Cell], best: Cell) -> float:
    """The share by which the time per image fell from the next smaller batch size."""
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
            f"{said}; memory limits it: batch {larger[0].batch} does not fit, though the last step "
            f"up still gained {fell:.0%}."
        )
    if why in LIMITS:
        said += f"; {why} limits it: {LIMITS[why].format(share=shares[why])}"
        if shares[why] > 1:
            said += (
                " (they are counted for direct convolution, and Winograd's algorithm needs fewer; "
                "or the measured peak is too low)"
            )
    if ranked(larger):
        return f"{said}, and larger batches gain less than {NOTHING:.0%}."
    untimed = UNTIMED.get(larger[0].status, "failed") if larger else "were not tried"
    if math.isfinite(fell) and fell > NOTHING:
        return f"{said}; larger ones {untimed}, and the last step up still gained {fell:.0%}."
    return f"{said}; larger ones {untimed}." if larger else f"{said}."
