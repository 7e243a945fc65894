"""The distribution of an arena, its JSON, its tables, its report, and what history says."""

import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from arena_result import arena, made
from rich.console import Console

from pareo.cli.history import _best
from pareo.cli.tables import arena as arena_table
from pareo.lab import report
from pareo.lab.arena.summary import classes, distribution, headline, hottest, lines, worst
from pareo.lab.experiment import results
from pareo.lab.report.arena import figures

DOCUMENT = Path(__file__).parents[3] / "docs" / "howto-arena.md"


def test_the_figures_are_those_of_the_ratios() -> None:
    found = distribution(arena().bouts)
    assert found is not None
    assert found.count == 3
    assert found.beaten == 1
    assert found.mean == pytest.approx((2 * 4 * 0.5) ** (1 / 3))
    assert found.quartiles[1] == pytest.approx(2)
    assert found.low < found.mean < found.high
    assert (found.won, found.sure, found.lost) == (2, 2, 1)
    assert found.share == 0.5


def test_nothing_to_compare() -> None:
    empty = arena(made(((None, 1.0, 1.0),)))
    assert distribution(empty.bouts) is None
    assert lines(empty) == [headline(empty)]
    assert classes(empty) == []
    assert figures(empty) == {}
    assert report.html(empty).startswith("<!doctype html>")
    assert _best(empty)[0] == "nothing was compared"


def test_the_worst_come_first() -> None:
    assert [bout.index for bout in worst(arena())] == [3, 2, 0, 1]
    assert hottest(arena().bouts[0]) == "70% in layer 0, Conv 4 @ 3x3 (conv_weight_gradient)"
    many = arena(made(tuple((1.0, 0.5 + n, None) for n in range(14))))
    assert [bout.index for bout in worst(many)] == list(range(10))


def test_the_histogram_holds_every_ratio() -> None:
    found = classes(arena())
    assert sum(count for _, _, count in found) == 3
    for bout in arena().compared:
        assert sum(low * 0.999 <= (bout.ratio or 0) < high * 1.001 for low, high, _ in found) >= 1


def test_it_is_read_as_it_was_written() -> None:
    result = arena()
    assert results.parsed(results.to_json(result), "itself") == result


def test_every_field_is_documented() -> None:
    def fields(value: Any, path: str = "") -> set[str]:
        if isinstance(value, list):
            return set[str]().union(*(fields(item, f"{path}[]") for item in value))
        if not isinstance(value, dict) or path in ("machine", "versions", "bouts[].rows[]"):
            return {path}
        return set[str]().union(*(fields(v, f"{path}.{k}".lstrip(".")) for k, v in value.items()))

    text = DOCUMENT.read_text().partition("## As JSON")[2]
    documented = set(re.findall(r"^\| `([^`]+)` \|", text, re.M))
    found = {field.removesuffix("[]") for field in fields(results.plain(arena()))}
    assert found == documented


def test_tables_and_report_show_every_network() -> None:
    result = arena()
    console = Console(width=170, record=True, file=StringIO())
    console.print(arena_table.table(result))
    console.print(arena_table.worst_table(result))
    text = console.export_text()
    assert "pareo-compiled refused: 0.w moved" in text
    assert "70% in layer 0" in text
    page = report.html(result)
    assert "geometric mean 1.59" in page
    assert page.count("Conv(4, 3), ReLU") >= 5
    drawn = figures(result)
    assert sum(drawn["ratios"]["data"][0]["y"]) == 3
    assert sum(len(trace["x"]) for trace in drawn["flops"]["data"]) == 3
    assert arena_table.line(result.bouts[0]).startswith("0 mlp, batch 2: best peer / pareo 2.00")
    assert _best(result)[0] == "best peer / pareo 1.59, 50% won"
    assert arena_table.drawn_lines(result)[-1].endswith(" 1")
