"""Nsight Compute's counters of pieces of work: what their kernels executed, and why they stalled.

The work runs once more under `ncu`, where it is not timed. A contestant does all of its work in one
process. An empty kernel marks the beginning of each piece.
"""

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from pareo.lab.ops.work import Work

TIMEOUT = 120  # seconds to get ready, and for each piece of work those below:
PATIENCE = 30  # every kernel is run again for each group of counters
MARK = "pareo_mark"
FLOPS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
COUNTS = {
    "adds": FLOPS.format("fadd"),
    "multiplies": FLOPS.format("fmul"),
    "multiply-adds": FLOPS.format("ffma"),
    "bytes read": "dram__bytes_read.sum",
    "bytes written": "dram__bytes_write.sum",
    "nanoseconds": "gpu__time_duration.sum",
}
# Shares of the peak that the GPU sustains.
THROUGHPUTS = {
    "arithmetic throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "memory throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
}
STALL = "smsp__warp_issue_stalled_{}_per_warp_active.pct"
# Share of the cycles of a warp in which it stalled, by today's reasons. The paper has two reasons,
# under their names of 2016: `stall_inst_fetch` is no_instruction; `stall_exec_dependency` is
# short_scoreboard and wait together.
REASONS = (
    "no_instruction", "short_scoreboard", "wait", "long_scoreboard", "math_pipe_throttle",
    "mio_throttle", "lg_throttle", "barrier", "not_selected", "dispatch_stall", "imc_miss",
)  # fmt: skip
PAPER = {
    "instruction fetch": ("no_instruction",),
    "execution dependency": ("short_scoreboard", "wait"),
}
METRICS = {**COUNTS, **THROUGHPUTS, **{reason: STALL.format(reason) for reason in REASONS}}
_why: list[str] = []  # tried once in a process


def why_not() -> str:
    """Why `ncu` cannot be used here; empty if it can."""
    if not _why:
        _why.append(_tried())
    return _why[0]


def _tried() -> str:
    if shutil.which("ncu") is None:
        return "ncu is not installed"
    code = "import cupy; cupy.arange(8)"
    done = _run(["--metrics", COUNTS["nanoseconds"], sys.executable, "-c", code])
    if done.returncode or '"ID"' not in done.stdout:
        lines = [line for line in done.stdout.splitlines() if "==ERROR==" in line]
        return (lines or ["it measured nothing"])[0].removeprefix("==ERROR== ").strip()
    return ""


def counted(contestant: str, works: Sequence[Work]) -> list[dict[str, Any]]:
    """The counters of one run of each piece of work, summed or averaged over its kernels."""
    done = _run(
        [
            "--metrics", ",".join(METRICS.values()), "--profile-from-start", "off",
            sys.executable, "-m", "pareo.lab.ops.counters.target", contestant,
            *(word for work in works for word in (work.operator, work.direction, str(work.nbytes))),
        ],
        TIMEOUT + PATIENCE * len(works),
    )  # fmt: skip
    pieces = by_mark(parsed(done.stdout))
    if done.returncode or len(pieces) != len(works):
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        reason = (last or ["no reason given"])[0][:200]
        pieces += [[] for _ in range(len(works) - len(pieces))]
        return [summed(piece) if piece else _failed(reason) for piece in pieces[: len(works)]]
    return [summed(piece) for piece in pieces]


def by_mark(kernels: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The kernels of each piece of work, without the marks between them.

    >>> by_mark([{"kernel": name} for name in (MARK, "a", "b", MARK, MARK, "c")])
    [[{'kernel': 'a'}, {'kernel': 'b'}], [], [{'kernel': 'c'}]]
    """
    pieces: list[list[dict[str, Any]]] = []
    for kernel in kernels:
        if kernel["kernel"].startswith(MARK):
            pieces.append([])
        elif pieces:
            pieces[-1].append(kernel)
    return pieces


def _failed(reason: str) -> dict[str, Any]:
    return {"rung": "ncu", "failed": reason}


def _run(words: list[str], timeout: float = TIMEOUT) -> subprocess.CompletedProcess[str]:
    command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired as expired:
        printed = (
            expired.stdout.decode(errors="replace") if isinstance(expired.stdout, bytes) else ""
        )
        return subprocess.CompletedProcess(command, 1, printed, f"no answer within {timeout:.0f} s")


def parsed(text: str) -> list[dict[str, Any]]:
    """Each kernel with its counters, from what `ncu --csv --page raw` prints.

    >>> text = '"ID","Kernel Name","dram__bytes_read.sum"\\n"","","Kbyte"\\n"0","k","1.5"'
    >>> parsed(text)
    [{'kernel': 'k', 'bytes read': 1500.0}]
    """
    start = text.find('"ID"')
    if start < 0:
        return []
    lines = list(csv.reader(io.StringIO(text[start:])))
    if len(lines) < 2:  # cut short
        return []
    head, units, *rows = lines
    names = {metric: name for name, metric in METRICS.items()}
    found = []
    for row in rows:
        cells = dict(zip(head, row, strict=False))
        kernel: dict[str, Any] = {"kernel": cells.get("Kernel Name", "")}
        for metric, unit in zip(head, units, strict=False):
            if metric in names and (number := _number(cells.get(metric, ""), unit)) is not None:
                kernel[names[metric]] = number
        found.append(kernel)
    return found


def _number(text: str, unit: str) -> float | None:
    """A cell in bytes, nanoseconds or percent.

    >>> _number("1,024.5", "Mbyte"), _number("2", "us"), _number("n/a", "")
    (1024500000.0, 2000.0, None)
    """
    scale = {"K": 1e3, "M": 1e6, "G": 1e9}.get(unit[:1], 1.0) if unit.endswith("byte") else 1.0
    scale *= {"us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}.get(
        unit, 1.0
    )
    try:
        return float(text.replace(",", "")) * scale
    except ValueError:
        return None


def summed(kernels: list[dict[str, Any]]) -> dict[str, Any]:
    """One piece of work: counts summed over its kernels, shares averaged by their time."""
    if not kernels:
        return _failed("ncu saw no kernel")
    found: dict[str, Any] = {"rung": "ncu", "kernels": [k["kernel"][:80] for k in kernels]}
    for name in COUNTS:
        found[name] = sum(kernel.get(name, 0.0) for kernel in kernels)
    found["flops"] = found["adds"] + found["multiplies"] + 2 * found["multiply-adds"]
    for name in THROUGHPUTS:
        found[name] = _average(kernels, [name])
    found["stalls"] = {reason: _average(kernels, [reason]) for reason in REASONS}
    found["paper's stalls"] = {name: _average(kernels, parts) for name, parts in PAPER.items()}
    return found


def _average(kernels: list[dict[str, Any]], names: Iterable[str]) -> float:
    names = list(names)
    total = sum(kernel.get("nanoseconds", 0.0) for kernel in kernels) or 1.0
    return sum(
        kernel.get("nanoseconds", 0.0) / total * sum(kernel.get(name, 0.0) for name in names)
        for kernel in kernels
    )
