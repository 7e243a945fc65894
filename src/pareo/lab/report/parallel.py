"""The report of `pareo parallel`: times, speedup by workers, sizes, and where each way pays."""

from html import escape
from pathlib import Path
from typing import Any

from pareo.lab.atomic_write import write_whole
from pareo.lab.experiment.statistics import interval
from pareo.lab.formatting import span
from pareo.lab.parallel.summary import lines, title
from pareo.lab.report.charts import colours, figure, line
from pareo.lab.report.page import page
from pareo.lab.report.tables import table

Figure = dict[str, Any]


def write(result: dict[str, Any], path: Path) -> None:
    """Write the report to a file."""
    write_whole(path, html(result))


def html(result: dict[str, Any]) -> str:
    """The report as one page."""
    return page(title(result), _body(result), figures(result))


def figures(result: dict[str, Any]) -> dict[str, Figure]:
    """Bars of train and test time; lines of the speedup by workers and by batch size."""
    found = {"times": _times(result)}
    if result.get("strategies"):
        found["workers"] = _by_workers(result)
    if result.get("sizes"):
        found["sizes"] = _by_size(result)
    return found


def _times(result: dict[str, Any]) -> Figure:
    rows = [row for row in result["rows"] if row["train"]][::-1]
    names = [_label(row) for row in rows]
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": names,
            "x": [row[field] or 0 for row in rows],
            "hovertemplate": "%{y}: %{x:.3g} s<extra>%{fullData.name}</extra>",
        }
        for name, field in (("test", "test_seconds"), ("train", "seconds"))
    ]
    layout = {
        "height": 140 + 34 * len(rows),
        "barmode": "group",
        "yaxis": {"automargin": True},
        "xaxis": {"title": {"text": "seconds for each network"}, "rangemode": "tozero"},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "reversed"},
    }
    return {"data": bars, "layout": layout}


def _label(row: dict[str, Any]) -> str:
    who = "" if row["contestant"] == "pareo" else f"{row['contestant']}: "
    return escape(f"{who}{row['name']} ({row['workers']})", quote=False)


def _by_workers(result: dict[str, Any]) -> Figure:
    palette = colours(entry["strategy"] for entry in result["strategies"])
    drawn = [
        line(
            entry["strategy"], palette[entry["strategy"]],
            [1, *map(int, entry["speedups"])], [1, *entry["speedups"].values()],
        )
        for entry in result["strategies"]
    ]  # fmt: skip
    counts = result["workers"]
    drawn.append(line("as many times as workers", "#888888", counts, counts, mode="lines"))
    return _chart(drawn, "workers", "linear")


def _by_size(result: dict[str, Any]) -> Figure:
    most = max(result["workers"])
    own = [
        {"strategy": row["name"], "batch": result["batch"], "speedup": row["speedup"]}
        for row in result["rows"]
        if row["workers"] == most
    ]
    seen = sorted([*result["sizes"], *own], key=lambda entry: entry["batch"])
    palette = colours(dict.fromkeys(entry["strategy"] for entry in seen))
    drawn = []
    for name, colour in palette.items():
        points = [e for e in seen if e["strategy"] == name and e["speedup"]]
        drawn.append(
            line(name, colour, [e["batch"] for e in points], [e["speedup"] for e in points])
        )
    return _chart(drawn, "batch size", "log")


def _chart(drawn: list[Figure], across: str, kind: str) -> Figure:
    layout: Figure = {
        "height": 440,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "xaxis": {"title": {"text": across}, "type": kind},
        "yaxis": {
            "title": {"text": "times as fast as one worker"},
            "rangemode": "tozero",
            "automargin": True,
        },
    }
    if kind == "linear":
        layout["xaxis"]["dtick"] = 1
    return {"data": drawn, "layout": layout}


def _body(result: dict[str, Any]) -> str:
    said = lines(result)
    circumstances = (
        f"{result['when'][:16].replace('T', ' ')}, "
        f"{result['machine'].get('processor', 'an unknown processor')}."
    )
    sections = [
        f"<h1>{escape(title(result))}</h1>",
        f"<p>{escape(circumstances)}</p>",
        "".join(f'<p class="headline">{escape(one)}</p>' for one in said[:1]),
        f"<ul>{''.join(f'<li>{escape(one)}</li>' for one in said[1:])}</ul>",
        "<h2>Times</h2>",
        figure("times", "Seconds of training and of testing for each network, medians (workers)."),
        _ways(result),
    ]
    if result.get("strategies"):
        sections += [
            "<h2>Workers</h2>",
            figure("workers", "How many times as fast as one worker."),
            _laws(result),
        ]
    if result.get("sizes"):
        sections += [
            "<h2>Sizes</h2>",
            figure("sizes", f"With {max(result['workers'])} workers, at several batch sizes."),
        ]
    if "published" in result:
        sections += ["<h2>The paper</h2>", _published(result)]
    sections += ["<h2>Machine</h2>", table(["", ""], result["machine"].items())]
    return "\n".join(sections)


def _ways(result: dict[str, Any]) -> str:
    rows = []
    for row in result["rows"]:
        ends = [value / row["networks"] for value in interval(row["train"])] if row["train"] else []
        spread = span(ends[0], ends[2]) if ends else ""
        rows.append(
            [
                row["contestant"], row["name"], row["workers"], row["networks"], row["seconds"],
                spread, _times_as(row["speedup"]), _share(row["efficiency"]),
                row["test_seconds"], _times_as(row["test_speedup"]),
                _share(row["communication"]), _share(row["idle"]), _share(row.get("of_peak")),
                f"{row['status']} {row['note']}".strip(),
            ]
        )  # fmt: skip
    heads = [
        "contestant", "way", "workers", "networks", "train s each", "95 % interval", "speedup",
        "efficiency", "test s each", "speedup", "communication", "idle", "of sgemm", "status",
    ]  # fmt: skip
    return table(heads, rows)


def _times_as(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _laws(result: dict[str, Any]) -> str:
    heads = ["strategy", "speedups", "serial share (Amdahl)", "limit", "pays from batch"]
    rows = [
        [
            entry["strategy"],
            ", ".join(f"{_times_as(s)} with {n}" for n, s in entry["speedups"].items()),
            _share(entry["serial_share"]), _times_as(entry["limit"]),
            result["pays_from"].get(entry["strategy"]) or "not here",
        ]
        for entry in result["strategies"]
    ]  # fmt: skip
    return table(heads, rows)


def _published(result: dict[str, Any]) -> str:
    known = result["published"]
    rows = [[name, *times] for name, times in known["seconds"].items()]
    return table(["way", f"train s, {known['epochs']} epochs", "test s"], rows)
