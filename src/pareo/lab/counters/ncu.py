"""Nsight Compute's counters of one piece of work: what its kernels executed, and why they waited.

The work runs once more, by itself, under `ncu`; no time is taken there.
"""

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from pareo.lab.ops.work import Work

TIMEOUT = 120  # seconds: every kernel is run again for each group of counters
FLOPS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
COUNTS = {
    "adds": FLOPS.format("fadd"),
    "multiplies": FLOPS.format("fmul"),
    "multiply-adds": FLOPS.format("ffma"),
    "bytes read": "dram__bytes_read.sum",
    "bytes written": "dram__bytes_write.sum",
    "nanoseconds": "gpu__time_duration.sum",
}
# Shares of what the card sustains at most.
THROUGHPUTS = {
    "arithmetic throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "memory throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
}
STALL = "smsp__warp_issue_stalled_{}_per_warp_active.pct"
# Of the cycles of a warp, those in which it waited, by today's reasons. Two of them, and what they
# were called in 2016, are in the paper: `stall_inst_fetch` is no_instruction;
# `stall_exec_dependency` is short_scoreboard and wait together.
REASONS = (
    "no_instruction", "short_scoreboard", "wait", "long_scoreboard", "math_pipe_throttle",
    "mio_throttle", "lg_throttle", "barrier", "not_selected", "dispatch_stall", "imc_miss",
)  # fmt: skip
PAPER = {
    "instruction fetch": ("no_instruction",),
    "execution dependency": ("short_scoreboard", "wait"),
}
METRICS = {**COUNTS, **THROUGHPUTS, **{reason: STALL.format(reason) for reason in REASONS}}
_why: list[str] = []  # found out once in a process


def why_not() -> str:
    """Why `ncu` cannot be used here; empty where it can."""
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


def counted(contestant: str, work: Work) -> dict[str, Any]:
    """The counters of one run of a piece of work, summed up or averaged over its kernels."""
    done = _run(
        [
            "--metrics", ",".join(METRICS.values()), "--profile-from-start", "off",
            sys.executable, "-m", "pareo.lab.counters.target",
            contestant, work.operator, work.direction, str(work.nbytes),
        ]
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        return {"rung": "ncu", "failed": (last or ["no reason given"])[0][:200]}
    return summed(parsed(done.stdout))


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {TIMEOUT} s")


def parsed(text: str) -> list[dict[str, Any]]:
    """Each kernel with its counters, from what `ncu --csv --page raw` prints.

    >>> text = '"ID","Kernel Name","dram__bytes_read.sum"\\n"","","Kbyte"\\n"0","k","1.5"'
    >>> parsed(text)
    [{'kernel': 'k', 'bytes read': 1500.0}]
    """
    start = text.find('"ID"')
    if start < 0:
        return []
    head, units, *rows = csv.reader(io.StringIO(text[start:]))
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
        return {"rung": "ncu", "failed": "ncu saw no kernel"}
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
