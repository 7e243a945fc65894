"""The report of an arena: the distribution of best peer / pareo, and every network."""

from math import log10

from pareo.lab.arena.result import ArenaResult, Bout
from pareo.lab.arena.summary import classes, distribution, headline, hottest, lines, worst
from pareo.lab.formatting import digits, seconds, times
from pareo.lab.report.charts import (
    COLOURS,
    Figure,
    above,
    colours,
    figure,
    label,
    logarithmic,
    titled,
    upright,
    with_legend,
)
from pareo.lab.report.page import head, items, page
from pareo.lab.report.tables import machine, table

RATIO = "time of the best peer / pareo's"
CAPTIONS = {
    "ratios": "How many networks have which ratio: above 1 pareo is faster.",
    "flops": "Each network by the FLOPs of its training step.",
}


def html(result: ArenaResult) -> str:
    """The report as one page."""
    settings = result.settings
    title = f"Arena of seed {settings.seed}: {len(result.bouts)} networks"
    drawn = figures(result)
    how = f"batch {settings.batch}, {result.precision}, {', '.join(settings.contestants)}"
    sections = [
        head(result, title, headline(result), settings.threads, more=how),
        items(lines(result)),
        *(figure(name, CAPTIONS[name]) for name in drawn),
        "<h2>The worst</h2><p>With the layer that pareo's time goes to, where each instruction "
        "of its step is timed alone.</p>",
        _worst(worst(result)),
        "<h2>All networks</h2><p>Seconds are those of a training step.</p>",
        _bouts(result.bouts),
        _missed(result.bouts),
        "<h2>Machine</h2>",
        machine(result),
    ]
    return page(title, sections, drawn)


def figures(result: ArenaResult) -> dict[str, Figure]:
    """The histogram, and the ratio by FLOPs; none where no ratio is known."""
    if distribution(result.bouts) is None:
        return {}
    return {"ratios": _histogram(result), "flops": _by_flops(result)}


def _histogram(result: ArenaResult) -> Figure:
    found = classes(result)
    bars = {
        "type": "bar",
        "x": [f"{low:.2f} to {high:.2f}" for low, high, _ in found],
        "y": [count for _, _, count in found],
        "marker": {"color": [COLOURS[0 if low >= 0.99 else 1] for low, _, _ in found]},
        "hovertemplate": "%{x}: %{y}<extra></extra>",
    }
    each = max(1, max((count for _, _, count in found), default=1) // 5)
    layout = {
        "height": 340,
        "showlegend": False,
        "xaxis": titled(RATIO, type="category"),
        "yaxis": titled("networks", rangemode="tozero", automargin=True, dtick=each),
    }
    return {"data": [bars], "layout": layout}


def _by_flops(result: ArenaResult) -> Figure:
    palette = colours(result.settings.kinds)
    drawn = []
    for kind, colour in palette.items():
        own = [bout for bout in result.compared if bout.kind == kind]
        if own:
            drawn.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": label(kind),
                    "x": [bout.flops for bout in own],
                    "y": [bout.ratio for bout in own],
                    "text": [label(f"{bout.index}, batch {bout.batch}") for bout in own],
                    "marker": {"color": colour, "size": 8},
                    "hovertemplate": "%{text}: %{y:.2f}<extra>%{fullData.name}</extra>",
                }
            )
    flops = [bout.flops for bout in result.compared]
    least, most = min(flops), max(flops)
    made = with_legend(
        drawn,
        420,
        titled("FLOPs of a step", **logarithmic(flops)),
        titled(RATIO, **logarithmic([1.0, *(bout.ratio or 1.0 for bout in result.compared)])),
    )
    across = {**upright(0, dash="dot", width=1), "x0": least, "x1": most, "y0": 1, "y1": 1}
    made["layout"]["shapes"] = [{**across, "yref": "y"}]
    made["layout"]["annotations"] = [
        {**above("as fast", log10(most)), "y": 0, "yref": "y", "xanchor": "right"}
    ]
    return made


def _worst(bouts: list[Bout]) -> str:
    rows = [
        [bout.index, times(bout.ratio), hottest(bout),
         bout.spent[0].shape if bout.spent else "", f"batch {bout.batch}, {bout.layers}"]
        for bout in bouts
    ]  # fmt: skip
    return table(
        ["index", "best peer / pareo", "layer", "its longest instruction", "network"], rows
    )


def _bouts(bouts: list[Bout]) -> str:
    rows = []
    for bout in bouts:
        ours, peer = bout.ours, bout.peer
        share = bout.batch / bout.images
        rows.append(
            [bout.index, bout.kind, bout.batch, f"{bout.parameters:,}", digits(bout.flops / 1e6),
             seconds(ours.median * share) if ours else "", peer.contestant if peer else "",
             seconds(peer.median * share) if peer else "", times(bout.ratio),
             str(bout.verdict or ""), bout.layers]
        )  # fmt: skip
    heads = ["index", "kind", "batch", "parameters", "MFLOP", "pareo", "best peer", "its time",
             "best peer / pareo", "pareo beside it", "network"]  # fmt: skip
    return table(heads, rows)


def _missed(bouts: list[Bout]) -> str:
    """Whatever was refused or failed."""
    rows = [
        [bout.index, row.contestant, row.status, row.note]
        for bout in bouts
        for row in bout.missed
    ]  # fmt: skip
    if not rows:
        return ""
    return "<h2>Not timed</h2>" + table(["index", "contestant", "status", "note"], rows)
