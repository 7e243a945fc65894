"""The report of a race: its text, and the page in a real Chromium where there is one."""

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from benchmarks.tables import drawn
from browser import browser, why_none
from race_result import curve, made, race
from typer.testing import CliRunner

from pareo.cli import app
from pareo.cli.tables import race as race_table
from pareo.errors import DataError
from pareo.lab import report
from pareo.lab.experiment import records
from pareo.lab.race.summary import headline
from pareo.lab.report.race.figures import figures

FIGURES = ["times", "epochs", "accuracy", "speedup"]
EVIL = "<script>document.title='evil'</script><img src=x onerror=\"document.title='evil'\">"


def evil():
    """A result in which every text tries to be HTML."""

    def spoiled(value):
        if isinstance(value, dict):
            return {key: spoiled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [spoiled(item) for item in value]
        return value + EVIL if isinstance(value, str) else value

    result = {**spoiled(made()), "kind": "race"}
    for row in result["rows"]:
        row["status"] = row["status"].removesuffix(EVIL)
        row["ledger"][EVIL] = EVIL
    result["machine"][EVIL] = result["versions"][EVIL] = EVIL
    return result


@pytest.mark.smoke
def test_no_text_becomes_html():
    page = report.html(race(evil()))
    assert EVIL not in page
    assert page.count("<script") == page.count("</script>") == 3
    assert page.count("&lt;script&gt;") > 20


def test_plotly_is_there_once_and_nothing_is_fetched():
    page = report.html(race())
    assert page.count("plotly.js v") == 1
    start = page.index('<script type="application/json"')
    assert "http:" not in page[:start]
    assert "https:" not in page[:start]
    for rule in ("default-src 'none'", "base-uri 'none'", "form-action 'none'"):
        assert rule in page.splitlines()[2]


@pytest.mark.smoke
def test_every_contestant_has_a_bar_or_a_reason():
    drawn = figures(race())
    assert list(drawn) == ["times", "epochs", "speedup", "accuracy"]
    (bars,) = drawn["times"]["data"]
    assert len(bars["x"]) == 6
    page = report.html(race())
    assert "<b>wrong</b> refused: the gradient of layers.0.bias differs" in page
    assert "<b>tensorflow</b> missing: install it with" in page


def test_the_floor_is_a_line_at_its_place():
    layout = figures(race())["times"]["layout"]
    assert layout["shapes"][0]["x0"] == 0.42
    assert layout["annotations"][0]["x"] == 0.42


@pytest.mark.smoke
def test_bars_are_to_scale_but_for_those_far_longer():
    drawn = figures(race())["times"]
    (bars,) = drawn["data"]
    assert "type" not in drawn["layout"]["xaxis"]
    end = drawn["layout"]["xaxis"]["range"][1]
    medians = [row.median for row in sorted(race().rows, key=lambda row: row.median)][:6]
    assert bars["x"] == [*medians[:5], end]
    assert bars["marker"]["pattern"]["shape"] == ["", "", "", "", "", "/"]
    assert bars["y"][5].startswith("pareo-sequential<br>5,2")
    assert bars["y"][5].endswith(" s »")
    assert bars["error_x"]["array"][5] == 0


@pytest.mark.parametrize(
    ("slowed", "hatched"),
    [({"pareo-compiled": 0.001}, 1), ({"pareo-sequential": 0.001}, 0), ({"torch": 40}, 2)],
)
def test_what_is_cut_depends_on_the_two_fastest(slowed, hatched):
    (bars,) = figures(race(made(slowed)))["times"]["data"]
    assert bars["marker"]["pattern"]["shape"].count("/") == hatched


def test_one_epoch_is_no_curve():
    result = made()
    for row in result["rows"]:
        row["curve"] = row["curve"][:1]
    assert list(figures(race(result))) == ["times"]
    assert "Nobody trained two epochs" in report.html(race(result))


def test_verdicts_say_how_many_times_as_fast():
    page = report.html(race())
    assert "faster: 2.09 times as fast (" in page
    assert "slower: takes 1.42 times as long (" in page
    assert "times the seconds" not in page


def test_outliers_are_folded_away_and_warnings_are_not():
    result = made()
    result["rows"][0]["samples"][3] *= 3
    result["machine"]["idle_cores"] = 0.5
    page = report.html(race(result))
    folded = page[page.index("<details>") : page.index("</details>")]
    assert "pareo-compiled: 1 of 20 samples lie far from the rest" in folded
    assert "Other programs were running" in page[: page.index("<details>")]


def test_numbers_are_aligned_and_empty_columns_left_out():
    page = report.html(race())
    assert '<th class="n">s per epoch</th>' in page
    assert '<td class="n">1.305 to 1.317</td>' in page
    assert "<td>float32</td>" in page
    assert "<th>note</th>" not in page
    result = made()
    result["rows"][0]["note"] = "timed on <few> images"
    assert "<td>timed on &lt;few&gt; images</td>" in report.html(race(result))


def test_each_place_has_its_own_floor_and_each_row_its_share():
    result = made()
    card = result["rows"][1]
    card["floor"] = {**card["floor"], "place": "cuda", "seconds_per_epoch": 0.0274}
    layout = figures(race(result))["times"]["layout"]
    assert [line["x0"] for line in layout["shapes"]] == [0.42, 0.0274]
    texts = [note["text"] for note in layout["annotations"]]
    assert texts == ["floor of the CPU<br>0.42 s", "floor of the GPU<br>0.0274 s"]
    page = report.html(race(result))
    assert "on the CPU by its arithmetic and on the GPU by its arithmetic" in page
    assert '<td class="n">1 %</td>' in page  # 0.0274 of 2.74 s
    assert '<td class="n">32 %</td>' in page  # 0.42 of 1.31 s


def test_speedup_is_the_bases_seconds_over_ones_own():
    result = made()
    by_name = {row["contestant"]: row for row in result["rows"]}
    by_name["torch"]["curve"], by_name["pareo-compiled"]["curve"] = curve(3.0, 10), curve(1.5, 4)
    drawn = figures(race(result))["speedup"]
    assert drawn["base"] == "torch"
    lines = {line["name"]: line for line in drawn["data"]}
    assert lines["pareo-compiled"]["x"] == [1, 2, 3, 4]
    assert lines["pareo-compiled"]["y"] == [2.0] * 4
    assert lines["torch"]["y"] == [1.0] * 10


def test_the_headline_claims_no_more_than_was_told():
    assert headline(race()).endswith("2.09 times as fast as torch.")
    equal = made({"torch": 1.31 / 2.74})
    assert "cannot tell" in headline(race(equal))
    assert headline(race({**made(), "rows": []})).startswith("No contestant was timed")


@pytest.mark.parametrize("spoil", [
    lambda r: r.update(rows=[]),
    lambda r: r.update(rows=[row for row in r["rows"] if row["status"] != "ok"]),
    lambda r: [row.update(curve=[]) for row in r["rows"]],
    lambda r: [row.update(samples=row["samples"][:1], rounds=[0][: len(row["samples"])])
               for row in r["rows"]],
    lambda r: [row.update(floor={"seconds_per_epoch": None}) for row in r["rows"]],
    lambda r: r.update(machine={}),
    lambda r: [point.update(accuracy=None) for row in r["rows"] for point in row["curve"]],
])  # fmt: skip
def test_a_result_with_little_in_it_still_has_a_page(spoil):
    result = made()
    spoil(result)
    page = report.html(race(result))
    assert "<h2>Machine</h2>" in page
    assert "nan" not in page[: page.index('<script type="application/json"')].lower()


def test_the_command_draws_from_a_file_and_from_the_records(tmp_path, monkeypatch):
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "records.sqlite"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text(json.dumps(made()))
    records.save(race())
    for words, path in (["a.json"], "a.html"), (["1"], "pareo-result-1.html"), (
        ["last", "--html", "b.html"], "b.html"):  # fmt: skip
        done = CliRunner().invoke(app, ["report", *words])
        assert done.exit_code == 0
        assert done.stdout.split()[-1] == str(tmp_path / path)
        assert (tmp_path / path).read_text() == report.html(race())


def test_the_kind_of_a_result_decides_no_path(tmp_path, monkeypatch):
    here = tmp_path / "some" / "where"
    (here / "pareo-").mkdir(parents=True)
    monkeypatch.chdir(here)
    (here / "a.json").write_text(json.dumps({**made(), "kind": "/../../../victim"}))
    before = set(tmp_path.rglob("*"))
    done = CliRunner().invoke(app, ["report", "a.json"])
    assert "expected one of race, kernels, sweep" in str(done.exception)
    assert "in kind; got '/../../../victim'" in str(done.exception)
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("words", [["a.html"], ["a.html", "--html", "./a.html"]])
def test_a_report_never_replaces_its_result(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.html").write_text(json.dumps(made()))
    done = CliRunner().invoke(app, ["report", *words])
    assert str(done.exception) == "a.html: the report would replace it; choose another --html"
    assert json.loads((tmp_path / "a.html").read_text()) == made()


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match=r"r\.html: cannot be written: No such file"):
        report.write(race(), tmp_path / "nowhere" / "r.html")


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    if reason := why_none():
        pytest.skip(reason)
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280], ids=["phone", "desktop"])
def test_every_figure_is_drawn_and_nothing_leaves_the_page(window, tmp_path, width, dark):
    report.write(race(), tmp_path / "r.html")
    window.device(width, 800, dark)
    window.open(tmp_path / "r.html")
    window.screenshot(tmp_path / "r.png")
    assert (tmp_path / "r.png").stat().st_size > 50_000
    assert window.logged() == []
    assert window.requests() == [(tmp_path / "r.html").as_uri()]
    count = "return document.querySelectorAll('#{} .{}').length"
    assert window.run(count.format("times", "bars .point")) == 6
    assert window.run(count.format("times", "shapelayer path")) == 1
    for name in FIGURES[1:]:
        assert window.run(count.format(name, "scatterlayer .trace")) == 5
    assert window.run("return document.documentElement.scrollWidth") <= width
    for name in FIGURES:
        box = f"document.querySelector('#{name} .main-svg').getBoundingClientRect()"
        assert 0 < window.run(f"return {box}.right") <= width


def test_another_base_may_be_chosen_for_the_speedup(window, tmp_path):
    report.write(race(), tmp_path / "r.html")
    window.open(tmp_path / "r.html")
    choose = "base.value = 'jax'; base.dispatchEvent(new Event('change'))"
    heights = "return speedup.data.map((line) => line.y[0])"
    before = window.run(heights)
    window.run(choose)
    after = window.run(heights)
    assert before[1] == after[3] == 1
    assert after[0] > before[0]


def test_in_the_browser_too_no_text_becomes_html(window, tmp_path):
    report.write(race(evil()), tmp_path / "r.html")
    window.open(tmp_path / "r.html")
    assert EVIL in window.run("return document.body.innerText")
    assert window.run("return document.querySelectorAll('img').length") == 0
    labels = window.run("return [...document.querySelectorAll('.ytick')].map((t) => t.textContent)")
    assert any(label.startswith(f"pareo-compiled{EVIL}") for label in labels)
    assert "evil" not in window.run("return document.title").replace(EVIL, "")
    assert window.logged() == []


def test_the_printed_page_is_black_on_white(window, tmp_path):
    report.write(race(), tmp_path / "r.html")
    window.device(1280, 800, dark=True)
    window.open(tmp_path / "r.html")
    colour = "return epochs.layout.font.color"
    on_screen = window.run(colour)
    window.run("dispatchEvent(new Event('beforeprint'))")
    assert window.run(colour) == "#000000" != on_screen
    window.run("dispatchEvent(new Event('afterprint'))")
    assert window.run(colour) == on_screen
    window.printed(tmp_path / "r.pdf")
    assert (tmp_path / "r.pdf").read_bytes().startswith(b"%PDF")


def comes(true, seconds=20):
    """Whether something becomes true in time: a browser's logs may come a little late."""
    end = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


@pytest.fixture
def server():
    """A web server that has nothing: its address, and what it was asked for."""
    asked = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *words):
            """Nothing on the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as listening:
        Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}", asked
        listening.shutdown()


def test_this_browser_would_notice_an_error_and_a_request(window, tmp_path, server):
    url, asked = server
    page = f'<img src="{url}/x.png"><script>throw new Error("seen")</script>'
    (tmp_path / "bad.html").write_text(page)
    window.open(tmp_path / "bad.html")
    assert comes(lambda: any("seen" in line for line in window.logged()))
    assert comes(lambda: f"{url}/x.png" in window.requests())
    assert comes(lambda: "/x.png" in asked)


def test_the_policy_stops_a_page_that_asks(window, tmp_path, server):
    url, asked = server
    policy = report.html(race()).splitlines()[2]
    page = f'{policy}<img src="{url}/x.png"><script>throw new Error("seen")</script>'
    (tmp_path / "bad.html").write_text(page)
    window.open(tmp_path / "bad.html")
    told = []
    assert comes(lambda: told.extend(window.logged()) or len(told) >= 2)
    assert all("Content Security Policy" in line for line in told)
    assert asked == []


def powered() -> dict:
    """A race of which two contestants have energy, one of them with the power of idling."""
    result = made()
    spent = {"source": "NVML", "joules": 700.0, "seconds": 2.0, "images": 1000, "turns": 4}
    result["rows"][0]["energy"] = {**spent, "idle_watts": 100.0}
    result["rows"][1]["energy"] = {**spent, "joules": 900.0}
    return result


def test_time_is_drawn_against_energy() -> None:
    found = race(powered())
    ours, net, torch = figures(found)["energy"]["data"]
    assert (ours["name"], net["name"], torch["name"]) == (
        "pareo-compiled", "pareo-compiled, less idling", "torch",
    )  # fmt: skip
    assert (ours["y"], net["y"], torch["y"]) == ([0.7], [0.5], [0.9])
    assert ours["x"] == [pytest.approx(1e3 * found.rows[0].median / found.images)]
    assert ours["error_y"]["array"] == [pytest.approx(0.07)]
    page = report.html(found)
    assert "J an image" in page
    assert "not measurable here" not in page
    assert "energy" not in figures(race())
    assert "Energy: not measurable here." in report.html(race())


def test_the_energy_to_an_accuracy_is_shown() -> None:
    result = powered()
    result["rows"][0]["curve"] = curve(2.0)  # 95 % after three epochs
    shown = drawn(race_table.table(race(result), accuracy=0.95))
    assert shown is not None
    assert shown.heads[-2] == "J to 95.0%"
    assert shown.rows[0][-2] == "2,100"
