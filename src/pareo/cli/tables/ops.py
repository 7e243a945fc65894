"""What `pareo ops` shows: a table for each operator, sizes down, contestants across."""

from collections.abc import Iterator
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from pareo.cli.tables.narrow import Figures
from pareo.lab.experiment import statistics
from pareo.lab.formatting import digits, span
from pareo.lab.ops.engine import Benchmark
from pareo.lab.ops.result import Cell, OpsResult
from pareo.lab.ops.sizes import shown
from pareo.lab.ops.summary import Timed, kinds, not_timed, offenders, raised, timed


def everything(result: OpsResult, cells: bool = False) -> Iterator[RenderableType]:
    """The tables, then what a reader must know."""
    found = timed(result)
    for kind in kinds(result.rows):
        chosen = [one for one in found if one.cell.kind == kind]
        yield _matrix([cell for cell in result.rows if cell.kind == kind], chosen)
        if cells:
            yield _cells(chosen)
    if worst := offenders(found):
        yield _worst(worst)
    for line in lines(result):
        yield escape(line)


def running(benchmark: Benchmark) -> Group:
    """The operator at hand while it runs, and below it what is being done."""
    result = benchmark.result()
    parts: list[RenderableType] = []
    for kind in kinds(result.rows)[-1:]:
        cells = [cell for cell in result.rows if cell.kind == kind]
        parts.append(_matrix(cells, timed(replace(result, rows=cells))))
    parts.append(f"{benchmark.done} of {len(benchmark.works)} done; {escape(benchmark.doing)}")
    return Group(*parts)


def line(benchmark: Benchmark) -> str:
    """What is being done, in a line of a log."""
    return f"{benchmark.done} of {len(benchmark.works)} done; {benchmark.doing}"


def lines(result: OpsResult) -> list[str]:
    """What a reader must know: which contestants have no times and why, and how noisy it was."""
    found = not_timed(result)
    errors = [cell.error or 0.0 for cell in result.rows if cell.hot]
    if errors:
        found.append(f"All timed contestants agree with float64 within {max(errors):.0e}.")
    found += raised(result)
    for place, rung in result.rungs.items():
        why = f" ({rung.why})" if rung.why else ""
        found.append(f"Counters of {place}: {rung.name}{why}.")
    return found + statistics.noticed({}, result.threads, result.machine.idle_cores)


def _matrix(rows: list[Cell], found: list[Timed]) -> Table:
    """GB/s, or GFLOP/s if arithmetic is the limit, and the share of the roofline."""
    names = list(dict.fromkeys(cell.contestant for cell in rows))
    known = {(one.cell.contestant, one.cell.nbytes): one for one in found}
    arithmetic = any(one.limit.why == "arithmetic" for one in found)
    unit = "GFLOP/s" if arithmetic else "GB/s"
    title = f"{', '.join(rows[0].kind)}: {unit} and share of the roofline, hot | cold"
    least = [name for name in reversed(names) if not name.startswith("pareo")]
    made = Figures("size", *names, title=escape(title), least=least)
    for nbytes in dict.fromkeys(cell.nbytes for cell in rows):
        shares = []
        for name in names:
            one = known.get((name, nbytes))
            shares.append(_share(one, arithmetic) if one else _state(rows, name, nbytes))
        made.add_row(shown(nbytes), *shares)
    return made


def _share(one: Timed, arithmetic: bool) -> str:
    parts = []
    for _, figure in one.shown:
        rate = figure.flops_rate if arithmetic else figure.byte_rate
        parts.append(f"{digits(rate / 1e9)} {figure.of_roofline:4.0%}")
    return " | ".join(parts)


def _state(rows: list[Cell], name: str, nbytes: int) -> str:
    """Why there is no time, in a word; empty while it is being taken."""
    own = (cell.status for cell in rows if (cell.contestant, cell.nbytes) == (name, nbytes))
    return "".join(f"[dim]{status}[/]" for status in own if status != "ok")


def _cells(found: list[Timed]) -> Table:
    """Every figure of every cell."""
    least = ("FLOP/B", "limit", "95 % interval", "of peak", "GFLOP/s", "of bandwidth")
    made = Figures(
        "size", "contestant", "us", "95 % interval", "GFLOP/s", "GB/s", "FLOP/B", "of peak",
        "of bandwidth", "of roofline", "limit", title="hot, then cold if a cache could hold it",
        left=("contestant", "limit"), least=least,
    )  # fmt: skip
    for one in found:
        for cold, figure in one.shown:
            made.add_row(
                shown(one.cell.nbytes),
                one.cell.contestant + (" cold" if cold else ""),
                digits(figure.seconds * 1e6),
                span(figure.low * 1e6, figure.high * 1e6),
                digits(figure.flops_rate / 1e9),
                digits(figure.byte_rate / 1e9),
                f"{figure.intensity:.3g}",
                f"{figure.of_peak:.2%}",
                f"{figure.of_bandwidth:.1%}",
                f"{figure.of_roofline:.1%}",
                one.limit.why,
            )
    return made


def _worst(found: list[Timed]) -> Table:
    title = "worst offenders: pareo's cells furthest from the roofline, at their largest size"
    names = ("operator", "device")
    made = Figures(*names, "size", "of roofline", "us", "could be", title=title, left=names)
    for one in found:
        made.add_row(
            " ".join(one.cell.kind),
            one.cell.contestant.removeprefix("pareo-"),
            shown(one.cell.nbytes),
            f"{one.hot.of_roofline:.0%}",
            digits(one.hot.seconds * 1e6),
            digits(one.limit.floor(cold=False) * 1e6),
        )
    return made
