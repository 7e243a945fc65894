"""The tables of the fifth paper, with this machine beside its three GPUs, and its stalls."""

from html import escape
from typing import Any

from pareo.lab.formatting import digits
from pareo.lab.ops.counters.ncu import PAPER, REASONS
from pareo.lab.ops.result import Cell
from pareo.lab.ops.summary import Timed
from pareo.lab.papers import melo
from pareo.lab.report.tables import table

TABLES = {"Table 2": ("add", "mul", "dot"), "Table 3": ("scalar", "sigmoid", "tanh")}
# Arrays that each moves. What the paper's profiler counted as FLOPs of the others is unknown.
ARRAYS = {"add": 3, "mul": 3, "scalar": 2}


def sections(found: list[Timed]) -> list[str]:
    """The paper's two tables, for those of their operators that were measured."""
    parts = []
    for name, operators in TABLES.items():
        tables = [_operator(operator, found) for operator in operators]
        if any(tables):
            parts.append(f"<h2>The paper's {name.lower()}, and this machine</h2>{EXPLAINED}")
            parts += [one for one in tables if one]
    return parts


EXPLAINED = (
    "<p>MFLOP/s and, as in the paper, per cent of the arithmetic peak. For the paper's GPUs at its "
    "nearest size, with per cent of their bandwidth if the bytes follow from its FLOPs. For this "
    "machine also per cent of the roofline, which is the limit that counts. Operands were in "
    "the caches if they fit.</p>"
)


def _operator(operator: str, found: list[Timed]) -> str:
    own = [one for one in found if one.cell.kind == (operator, "forward")]
    if not own:
        return ""
    names = list(dict.fromkeys(one.cell.contestant for one in own))
    rows = []
    for nbytes in dict.fromkeys(one.cell.nbytes for one in own):
        near = melo.nearest(operator, nbytes)
        here = {one.cell.contestant: one for one in own if one.cell.nbytes == nbytes}
        rows.append(
            [
                digits(nbytes / 2**20),
                near,
                *_published(operator, near),
                *(_ours(here[name]) if name in here else "" for name in names),
            ]
        )
    heads = ["MB", "the paper's", *(gpu.name for gpu in melo.GPUS), *names]
    return f"<h3>{escape(operator.upper())}</h3>{table(heads, rows, wrap=True)}"


def _published(operator: str, size: int | None) -> list[str]:
    if size is None:
        return [""] * len(melo.GPUS)
    cells = []
    for gpu, (mflops, share) in zip(melo.GPUS, melo.PUBLISHED[operator][size], strict=True):
        text = f"{digits(mflops)} ({share:g} %)"
        if operator in ARRAYS:
            text += f", bandwidth {bandwidth_share(operator, mflops, gpu):.0%}"
        cells.append(text)
    return cells


def bandwidth_share(operator: str, mflops: float, gpu: melo.Gpu) -> float:
    """The share of a GPU's bandwidth that the paper's MFLOP/s need: a FLOP for each element.

    >>> round(bandwidth_share("add", 10726.58, melo.GPUS[1]), 2)
    0.45
    """
    return mflops * 1e6 * 4 * ARRAYS[operator] / gpu.bandwidth


def _ours(one: Timed) -> str:
    hot = one.hot
    share = f"{hot.of_peak * 100:.2g} %"
    return f"{digits(hot.flops_rate / 1e6)} ({share}), roofline {hot.of_roofline:.0%}"


def counters(cells: list[Cell]) -> str:
    """What counters said: their rung, what was executed and moved, and why warps stalled."""
    known = [cell for cell in cells if len(cell.counters) > 1]
    if not known:
        return ""
    lines = []
    for cell in known:
        found = cell.counters
        lines.append(
            [
                f"{' '.join(cell.kind)}, {cell.nbytes >> 20} MB",
                cell.contestant,
                found.get("rung"),
                found.get("failed"),
                _mega(found, "flops"),
                digits(cell.flops / 1e6),
                _mega(found, "bytes read"),
                _mega(found, "bytes written"),
                digits(cell.moved / 1e6),
                _percent(found, "arithmetic throughput"),
                _percent(found, "memory throughput"),
            ]
        )
    heads = ["operator", "contestant", "rung", "failed", "MFLOP executed", "MFLOP by formula"]
    heads += ["MB read", "MB written", "MB by formula"]
    heads += ["arithmetic, % of peak", "memory, % of peak"]
    return f"<h2>Counters</h2>{table(heads, lines, wrap=True)}{_stalls(known)}"


def _mega(found: dict[str, Any], name: str) -> str:
    return digits(found[name] / 1e6) if name in found else ""


def _percent(found: dict[str, Any], name: str) -> str:
    return f"{found[name]:.3g}" if name in found else ""


def _stalls(cells: list[Cell]) -> str:
    """Why warps stalled in `dot`, beside what the paper found on its GPUs."""
    own = [cell for cell in cells if cell.operator == "dot" and "stalls" in cell.counters]
    if not own:
        return ""
    lines: list[list[Any]] = []
    for gpu, stalls in melo.STALLS.items():
        published = [f"{stalls[name] * 100:.0f}" for name in PAPER]
        lines.append([f"the paper's {gpu}, 6 MB", *published, *[""] * len(REASONS)])
    for cell in own:
        stalls = cell.counters["stalls"]
        both = [cell.counters["paper's stalls"][name] for name in PAPER]
        shares = [f"{value:.3g}" for value in (*both, *(stalls[name] for name in REASONS))]
        lines.append([f"{cell.contestant}, {cell.nbytes >> 20} MB", *shares])
    heads = ["dot", *PAPER, *(name.replace("_", " ") for name in REASONS)]
    return (
        "<h3>Why warps waited</h3><p>Per cent of a warp's cycles, by ncu. The paper's two reasons "
        "first: its instruction fetch is today's <i>no instruction</i>, its execution dependency "
        f"<i>short scoreboard</i> and <i>wait</i> together.</p>{table(heads, lines)}"
    )
