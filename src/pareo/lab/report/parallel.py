"""The report of `pareo parallel`: times, and speedups by workers and by batch size."""

from pareo.lab.experiment.statistics import interval
from pareo.lab.formatting import percent, span, times
from pareo.lab.parallel.result import OneNetworkResult, PapersResult, ParallelResult
from pareo.lab.parallel.speedup import at_batch
from pareo.lab.parallel.summary import lines, title
from pareo.lab.report.charts import (
    COLOURS,
    GREY,
    Figure,
    bars,
    colours,
    figure,
    line,
    logarithmic,
    titled,
    with_legend,
)
from pareo.lab.report.page import head, items, page
from pareo.lab.report.tables import machine, table


def html(result: ParallelResult) -> str:
    """The report as one page."""
    return page(title(result), _sections(result), figures(result))


def figures(result: ParallelResult) -> dict[str, Figure]:
    """Bars of train and test time; lines of the speedup by workers and by batch size."""
    found = {"times": _times(result)}
    if isinstance(result, OneNetworkResult) and result.strategies:
        found["workers"] = _by_workers(result)
    if isinstance(result, OneNetworkResult) and result.sizes:
        found["sizes"] = _by_size(result)
    return found


def _times(result: ParallelResult) -> Figure:
    rows = [row for row in result.rows if row.train][::-1]
    names = [row.label.removeprefix("pareo: ") for row in rows]
    seconds = {
        "test": [row.test_seconds or 0 for row in rows],
        "train": [row.seconds or 0 for row in rows],
    }
    hover = "%{y}: %{x:.3g} s<extra>%{fullData.name}</extra>"
    drawn = [
        bars(names, values, hover, name=name, marker={"color": colour})
        for (name, values), colour in zip(seconds.items(), COLOURS[1::-1], strict=True)
    ]
    axis = titled("seconds for each network", rangemode="tozero")
    found = with_legend(drawn, 140 + 34 * len(rows), axis, {}, {"traceorder": "reversed"})
    found["layout"]["barmode"] = "group"
    return found


def _by_workers(result: OneNetworkResult) -> Figure:
    palette = colours(one.strategy for one in result.strategies)
    drawn = []
    for one in result.strategies:
        if not any(one.speedups.values()):
            continue
        points = {1: 1.0} | {int(n): speedup for n, speedup in one.speedups.items() if speedup}
        drawn.append(line(one.strategy, palette[one.strategy], [*points], [*points.values()]))
    counts = result.workers
    drawn.append(line("as many times as workers", GREY, counts, counts, mode="lines"))
    return _speedups(drawn, titled("workers", dtick=1))


def _by_size(result: OneNetworkResult) -> Figure:
    own = at_batch(result.rows, result.batch, result.most_workers)
    seen = sorted([*result.sizes, *own], key=lambda one: one.batch)
    drawn = []
    for name, colour in colours(dict.fromkeys(one.strategy for one in seen)).items():
        points = [(one.batch, one.speedup) for one in seen if one.strategy == name and one.speedup]
        drawn.append(line(name, colour, [x for x, _ in points], [y for _, y in points]))
    return _speedups(
        drawn, titled("batch size", **logarithmic(x for one in drawn for x in one["x"]))
    )


def _speedups(drawn: list[Figure], x: Figure) -> Figure:
    return with_legend(drawn, 440, x, titled("times as fast as one worker", rangemode="tozero"))


def _sections(result: ParallelResult) -> list[str]:
    answer, *others = lines(result) or [""]
    sections = [
        head(result, title(result), answer),
        items(others),
        "<h2>Times</h2>",
        figure("times", "Seconds of training and of testing for each network, medians (workers)."),
        _strategies(result),
    ]
    if isinstance(result, OneNetworkResult) and result.strategies:
        sections += [
            "<h2>Workers</h2>",
            figure("workers", "How many times as fast as one worker."),
            _scaling(result),
        ]
    if isinstance(result, OneNetworkResult) and result.sizes:
        sections += [
            "<h2>Sizes</h2>",
            figure("sizes", f"With {result.most_workers} workers, at several batch sizes."),
        ]
    if isinstance(result, PapersResult):
        sections += ["<h2>The paper</h2>", _published(result)]
    return [*sections, "<h2>Machine</h2>", machine(result)]


def _strategies(result: ParallelResult) -> str:
    rows = []
    for row in result.rows:
        ends = [value / row.networks for value in interval(row.train)] if row.train else []
        rows.append(
            [
                row.contestant, row.name, row.workers, row.networks, row.seconds,
                span(ends[0], ends[2]) if ends else "", times(row.speedup),
                percent(row.efficiency), row.test_seconds, times(row.test_speedup),
                percent(row.communication), percent(row.idle), percent(row.of_peak),
                f"{row.status} {row.note}".strip(),
            ]
        )  # fmt: skip
    heads = [
        "contestant", "strategy", "workers", "networks", "train s each", "95 % interval",
        "speedup", "efficiency", "test s each", "speedup", "communication", "idle", "of sgemm",
        "status",
    ]  # fmt: skip
    return table(heads, rows, wrap=True)


def _scaling(result: OneNetworkResult) -> str:
    heads = ["strategy", "speedups", "serial share (Amdahl)", "limit", "pays from batch"]
    rows = [
        [
            one.strategy,
            ", ".join(f"{times(speedup)} with {count}" for count, speedup in one.speedups.items()),
            percent(one.serial_share), times(one.limit),
            result.pays_from.get(one.strategy) or "not here",
        ]
        for one in result.strategies
    ]  # fmt: skip
    return table(heads, rows)


def _published(result: PapersResult) -> str:
    rows = [[name, *seconds] for name, seconds in result.published.seconds.items()]
    return table(["strategy", f"train s, {result.published.epochs} epochs", "test s"], rows)
