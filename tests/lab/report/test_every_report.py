"""The reports of all kinds of results: what each says first, and how each looks in Chromium."""

import html
import re

import arena_result
import kernels_result
import ops_result
import pytest
import race_result
import replication_result
import sweep_result
from browser import browser, why_none

from pareo.errors import DataError
from pareo.lab import report
from pareo.lab.experiment import results
from pareo.lab.history import lines
from pareo.lab.history.points import points
from pareo.lab.machine.ceilings import Ceilings
from pareo.lab.report import ceilings, history
from pareo.lab.report.tables import table

MADE = {
    "race": race_result.made,
    "kernels": kernels_result.made,
    "sweep": sweep_result.made,
    "ops": ops_result.plain,
    "arena": arena_result.made,
    "paper": replication_result.made,
}


def page_of(kind):
    if kind == "history":
        return history_page()
    if kind == "ceilings":
        return ceilings.html([known()])
    return report.html(results.checked(MADE[kind](), kind))


def history_page():
    """A race a day, of which pareo's become slower."""
    races = []
    for day in range(24):
        when = f"2026-01-{day + 1:02}T00:00:00+00:00"
        data = race_result.made({"pareo-compiled": 2.0} if day > 14 else None, seed=day)
        races.append(results.checked({**data, "when": when}, "made up"))
    found = {}
    for number, race in enumerate(races, 1):
        for line, point in points(number, race):
            found.setdefault(line, []).append(point)
    return history.html(lines.series(found), len(races))


def order(page, *texts):
    """Whether all texts are in a page, in this order."""
    places = [page.index(text) for text in texts]
    return places == sorted(places)


@pytest.mark.parametrize("kind", MADE)
def test_a_headline_comes_first_and_a_policy_forbids_requests(kind):
    page = page_of(kind)
    assert order(page, "form-action 'none'", '<p class="headline">', "<h2>")


def test_kernels_say_first_where_the_time_goes():
    page = page_of("kernels")
    found = re.search('<p class="headline">(.*?)</p>', page)
    assert found is not None
    assert (
        found[1] == "torch: 1 s a step, of which 60% matrix products and 36% elementwise kernels."
    )
    assert order(page, "of which 60%", 'id="kinds"', "The paper counted")


def test_a_paper_begins_with_a_figure_beside_the_one_measured_here():
    result = results.checked(replication_result.made(), "made up")
    both = [one for one in result.lines if one.published is not None and one.here is not None]
    assert both
    page = report.html(result)
    found = re.search('<p class="headline">(.*?)</p>', page)
    assert found is not None
    assert found[1].startswith(html.escape(f"{both[0].section}; {both[0].what}: "))
    assert " in the paper, " in found[1]
    for one in result.lines:
        one.here = None
    assert '<p class="headline">0 of ' in report.html(result)


def test_short_kernels_are_folded_away():
    *kernels, rest = kernels_result.PLAIN
    more = [{**kernels[0], "name": f"kernel {n}", "seconds": 1e-6} for n in range(100)]
    page = report.html(kernels_result.kernels(*kernels, *more, rest))
    folded = page[page.index("<summary>48 shorter kernels</summary>") :]
    assert "<td>kernel 10</td>" in folded
    assert "<td>kernel 9</td>" not in folded
    assert "And 42 shorter ones." in folded
    assert "<td>kernel 58</td>" not in page


def test_operators_begin_with_shares_of_the_roofline():
    page = page_of("ops")
    assert order(
        page, "rooflines in the median", 'id="shares"', "Furthest from the limit", "The paper"
    )
    cells = page[page.index("<h2>Every cell</h2>") :]
    assert "<details><summary>add forward, 4 cells</summary>" in cells


def known(idle_cores=None):
    """Ceilings from a result of operators, measured while so many cores were idle."""
    found = results.checked(ops_result.plain(), "made up")
    (one,) = found.ceilings.values()
    assert isinstance(one, Ceilings)
    return results.convert({**results.plain(one), "idle_cores": idle_cores}, Ceilings, "made up")


def test_ceilings_have_a_headline_and_say_that_the_machine_was_busy():
    quiet, busy = ceilings.html([known(2.0)]), ceilings.html([known(0.5)])
    said = "a machine &lt;that&gt; is made up: at most 60 GFLOP/s in float32 and 50 GB/s"
    assert order(quiet, said, "<h2>")
    assert "Other programs were running" not in quiet
    assert "Other programs were running: 0.5 cores were idle" in busy


def test_a_memory_axis_names_every_tick_in_full():
    drawn = report.sweep.figures(results.checked(sweep_result.made(), "made up"))
    axis = drawn["memory"]["layout"]["yaxis"]
    assert axis["ticktext"] == ["0.5", "1", "2"]
    assert axis["tickvals"] == [0.5, 1.0, 2.0]


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    if reason := why_none():
        pytest.skip(reason)
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*MADE, "ceilings", "history"])
def test_it_fits_a_phone_and_its_tables_a_desktop(window, tmp_path, kind):
    (tmp_path / "r.html").write_text(page_of(kind))
    for width in (390, 1280):
        window.device(width, 800)
        window.open(tmp_path / "r.html")
        assert window.run("return document.documentElement.scrollWidth") <= width
        assert window.logged() == []
    wide = (
        "return [...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth)"
    )
    assert window.run(f"{wide}.length") == 0


HOSTILE = (
    "</script></title><script>document.title='evil'</script><img src=x onerror=\"fetch('//x.y')\">"
    "<a href=\"javascript:document.title='evil'\">a</a><base href='//x.y'><form action='//x.y'>"
)


def hostile(kind):
    """A result of which every text that may be any text is hostile, and how many are."""
    data = results.plain(results.checked(MADE[kind](), kind))
    count = 0

    def accepted():
        try:
            report.html(results.checked(data, kind))
        except DataError:
            return False
        return True

    def spoil(inner):
        nonlocal count
        for key in list(inner) if isinstance(inner, dict) else range(len(inner)):
            value = inner[key]
            if isinstance(value, (dict, list)):
                spoil(value)
            elif isinstance(value, str):
                inner[key] = value + HOSTILE
                try:
                    results.checked(data, kind)
                    count += 1
                except DataError:
                    inner[key] = value

    spoil(data)
    assert accepted()
    return data, count


@pytest.mark.slow
@pytest.mark.parametrize("kind", MADE)
def test_a_hostile_result_is_text_in_the_browser(window, tmp_path, kind):
    data, count = hostile(kind)
    assert count >= 3
    report.write(results.checked(data, kind), tmp_path / "r.html")
    window.open(tmp_path / "r.html")
    links = "[...document.querySelectorAll('a')].filter(a => !a.hash || a.protocol != 'file:')"
    assert window.run(f"return {links}.length") == 0
    assert window.run("return document.querySelectorAll('main img, base, form').length") == 0
    assert window.run("return document.querySelectorAll('script').length") == 3
    assert "document.title='evil'" in window.run("return document.body.innerText")
    assert window.run("return document.title").replace(HOSTILE, "") != "evil"
    assert window.logged() == []
    assert window.requests() == [(tmp_path / "r.html").as_uri()]


def test_a_name_and_a_number_with_its_unit_stay_on_one_line():
    page = table(["who", "time"], [["pareo-vectorized", "4,698 s"], ["a sentence", "1 s"]], True)
    assert '<td class="name">pareo-vectorized</td><td class="n">4,698&nbsp;s</td>' in page
    assert '<td>a sentence</td><td class="n">1&nbsp;s</td>' in page


def test_percents_within_a_text_stay_with_their_numbers():
    page = table(["MB", "torch"], [["2", "8.4 (0.52 %), roofline 10%"]], wrap=True)
    assert "<td>8.4 (0.52&nbsp;%), roofline 10%</td>" in page


def test_numbers_are_right_aligned_beside_a_contestant_without_one():
    page = table(["who", "ms"], [["torch", "1.5"], ["tensorflow", "missing"]])
    assert '<td class="n">1.5</td>' in page
