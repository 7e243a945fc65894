"""The fifth paper's tables, with this machine's columns beside its three GPUs, and its stalls."""

from html import escape
from typing import Any

from pareo.lab.formatting import digits
from pareo.lab.machine.counters.ncu import PAPER, REASONS
from pareo.lab.ops.reading import Read
from pareo.lab.papers import melo
from pareo.lab.report.tables import table

TABLES = {"Table 2": ("add", "mul", "dot"), "Table 3": ("scalar", "sigmoid", "tanh")}
# Arrays that each moves; what the paper's profiler counted as FLOPs of the others is not known.
ARRAYS = {"add": 3, "mul": 3, "scalar": 2}


def sections(found: list[Read]) -> list[str]:
    """The paper's two tables, as far as their operators were measured."""
    parts = []
    for name, operators in TABLES.items():
        tables = [_operator(operator, found) for operator in operators]
        if any(tables):
            parts.append(f"<h2>The paper's {name.lower()}, and this machine</h2>{EXPLAINED}")
            parts += [one for one in tables if one]
    return parts


EXPLAINED = (
    "<p>MFLOP/s and, as the paper has it, per cent of the arithmetic peak; for the paper's cards "
    "at its nearest size, with per cent of their bandwidth where its FLOPs tell the bytes; for "
    "this machine also per cent of the roofline, which is the limit that counts. Hot.</p>"
)


def _operator(operator: str, found: list[Read]) -> str:
    own = [c for c in found if (c.row["operator"], c.row["direction"]) == (operator, "forward")]
    if not own:
        return ""
    names = list(dict.fromkeys(cell.row["contestant"] for cell in own))
    rows = []
    for nbytes in dict.fromkeys(cell.row["nbytes"] for cell in own):
        near = melo.nearest(operator, nbytes)
        here = {c.row["contestant"]: c for c in own if c.row["nbytes"] == nbytes}
        rows.append(
            [
                digits(nbytes / 2**20),
                near,
                *_published(operator, near),
                *(_ours(here[name]) if name in here else "" for name in names),
            ]
        )
    heads = ["MB", "the paper's", *(card.name for card in melo.CARDS), *names]
    return f"<h3>{escape(operator.upper())}</h3>{table(heads, rows)}"


def _published(operator: str, size: int | None) -> list[str]:
    if size is None:
        return [""] * len(melo.CARDS)
    cells = []
    for card, (mflops, share) in zip(melo.CARDS, melo.PUBLISHED[operator][size], strict=True):
        text = f"{digits(mflops)} ({share:g} %)"
        if operator in ARRAYS:
            text += f", bandwidth {bandwidth_share(operator, mflops, card):.0%}"
        cells.append(text)
    return cells


def bandwidth_share(operator: str, mflops: float, card: melo.Card) -> float:
    """The share of a card's bandwidth that the paper's MFLOP/s need: a FLOP for each element.

    >>> round(bandwidth_share("add", 10726.58, melo.CARDS[1]), 2)
    0.45
    """
    return mflops * 1e6 * 4 * ARRAYS[operator] / card.bandwidth


def _ours(cell: Read) -> str:
    hot = cell.hot
    share = f"{hot.of_peak * 100:.2g} %"
    return f"{digits(hot.flops_rate / 1e6)} ({share}), roofline {hot.of_roofline:.0%}"


def counters(rows: list[dict[str, Any]]) -> str:
    """What counters said: from which rung, what was executed and moved, and why warps waited."""
    known = [row for row in rows if len(row["counters"]) > 1]
    if not known:
        return ""
    lines = []
    for row in known:
        found = row["counters"]
        executed = found.get("flops")
        lines.append(
            [
                f"{row['operator']} {row['direction']}, {row['nbytes'] >> 20} MB",
                row["contestant"],
                found.get("rung"),
                found.get("failed"),
                digits(executed / 1e6) if executed is not None else "",
                digits(row["flops"] / 1e6),
                _mega(found, "bytes read"),
                _mega(found, "bytes written"),
                digits((row["read"] + row["written"]) / 1e6),
                _percent(found, "arithmetic throughput"),
                _percent(found, "memory throughput"),
            ]
        )
    heads = ["operator", "contestant", "rung", "failed", "MFLOP executed", "MFLOP by formula"]
    heads += [
        "MB read",
        "MB written",
        "MB by formula",
        "arithmetic, % of peak",
        "memory, % of peak",
    ]
    return f"<h2>Counters</h2>{table(heads, lines)}{_stalls(known)}"


def _mega(found: dict[str, Any], name: str) -> str:
    return digits(found[name] / 1e6) if name in found else ""


def _percent(found: dict[str, Any], name: str) -> str:
    return f"{found[name]:.3g}" if name in found else ""


def _stalls(rows: list[dict[str, Any]]) -> str:
    """Why warps waited in `dot`, beside what the paper found on its cards."""
    own = [row for row in rows if row["operator"] == "dot" and "stalls" in row["counters"]]
    if not own:
        return ""
    lines: list[list[Any]] = []
    for card, stalls in melo.STALLS.items():
        cells = [f"{stalls[name] * 100:.0f}" for name in PAPER]
        lines.append([f"the paper's {card}, 6 MB", *cells, *[""] * len(REASONS)])
    for row in own:
        stalls = row["counters"]["stalls"]
        both = [row["counters"]["paper's stalls"][name] for name in PAPER]
        cells = [f"{value:.3g}" for value in (*both, *(stalls[name] for name in REASONS))]
        lines.append([f"{row['contestant']}, {row['nbytes'] >> 20} MB", *cells])
    heads = ["dot", *PAPER, *(name.replace("_", " ") for name in REASONS)]
    return (
        "<h3>Why warps waited</h3><p>Per cent of a warp's cycles, by ncu. The paper's two reasons "
        "first: its instruction fetch is today's <i>no instruction</i>, its execution dependency "
        f"<i>short scoreboard</i> and <i>wait</i> together.</p>{table(heads, lines)}"
    )
