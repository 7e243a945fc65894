"""What notebooks show: tables in which every text is escaped, frames, and progress."""

import sys
from html.parser import HTMLParser
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import race_result
import sweep_result
from hypothesis import given
from hypothesis import strategies as st

from pareo import Spec, nn, notebook, op, trace
from pareo.data import load
from pareo.lab.experiment import in_notebook, results
from pareo.training import fit
from pareo.training.history import Epoch, History

EVIL = "<script>alert(1)</script>"


class Cells(HTMLParser):
    """The texts of a table's cells, and the names of all tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] += data


@given(st.lists(st.lists(st.text("<>&\"' ab"), min_size=2, max_size=2), max_size=3))
def test_no_text_becomes_html(rows: list[list[str]]) -> None:
    found = Cells(notebook.table(["a", "b"], rows))
    assert found.tags <= {"table", "thead", "tbody", "tr", "th", "td"}
    expected = ["a", "b", *(text for row in rows for text in row)]
    assert [text.replace("\xa0", " ") for text in found.texts] == expected


@pytest.mark.smoke
def test_a_program_is_a_table_of_its_instructions() -> None:
    program = trace(lambda x: op.sum(op.relu(x)), Spec((8, 4)))
    found = Cells(program._repr_html_())
    assert found.texts[4:8] == ["input %0", "float32[8, 4]", "", ""]
    assert found.texts[8:12] == ["%1 = relu(%0)", "float32[8, 4]", "32 FLOP", "256 B"]
    assert str(program).splitlines()[-1] in program._repr_html_()


def test_a_summary_is_text_and_a_table() -> None:
    network = nn.Sequential({EVIL.replace(".", ""): nn.Dense(2)}, input_shape=(4,))
    summary = network.summary()
    assert isinstance(summary, str)
    assert summary.splitlines()[-1].startswith("total")
    html = summary._repr_html_()
    assert EVIL not in html
    assert Cells(html).texts[-5:-3] == ["total", ""]


def test_a_history_is_a_table_of_epochs() -> None:
    history = History([Epoch(1, 2.0, 0.5, None, None, 3e4, 1e9, None)])
    assert Cells(history._repr_html_()).texts[7:] == ["1", "2", "0.5000", "", "", "30,000", ""]
    assert Cells(History()._repr_html_()).tags >= {"table"}


@pytest.mark.parametrize("made", [race_result.made(), sweep_result.made()])
def test_results_show_their_finding_and_tables(made: dict[str, Any]) -> None:
    made = {**made, "network": EVIL}
    html = results.checked(made, "made up")._repr_html_()
    assert html is not None
    assert 'class="headline"' in html
    assert "<table>" in html
    assert EVIL not in html


def test_a_race_is_a_frame_with_a_row_for_each_contestant() -> None:
    frame = race_result.race().frame()
    assert [*frame["contestant"]] == [*race_result.TIMES, "wrong", "tensorflow"]
    first, wrong = frame.iloc[0], frame.iloc[-2]
    assert first["low"] < first["seconds"] < first["high"]
    assert first["of_floor"] == pytest.approx(0.42 / first["seconds"])
    assert first["peak_memory_bytes"] == 210 << 20
    assert wrong["status"] == "refused"
    assert wrong[["seconds", "of_floor"]].isna().all()


def test_a_sweep_is_a_frame_with_a_row_for_each_cell() -> None:
    result: Any = results.checked(sweep_result.made(), "made up")
    frame = result.frame()
    assert len(frame) == len(result.cells)
    cell = next(cell for cell in result.cells if cell.times)
    row = frame.set_index(["contestant", "batch"]).loc[cell.key]
    assert row["seconds"] == pytest.approx(cell.median)
    assert row["used_bytes"] == cell.memory.used


def test_without_pandas_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"RaceResult\.frame needs pandas: pip install pandas"):
        race_result.race().frame()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a notebook that is not there was asked to show, at any time."""
    shown: list[str] = []

    class Handle:
        def update(self, html: str) -> None:
            shown.append(html)

    def display(html: str, display_id: bool) -> Handle:
        shown.append(html)
        return Handle()

    fake: Any = ModuleType("IPython")
    fake.get_ipython = lambda: SimpleNamespace(kernel=object())
    screen: Any = ModuleType("IPython.display")
    screen.HTML, screen.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", screen)
    monkeypatch.setattr(notebook, "EVERY", 0.0)
    return shown


def test_outside_of_a_notebook_nothing_is_shown() -> None:
    under_way = SimpleNamespace(doing="round 1", rows=race_result.race().rows)
    in_notebook.watching(lambda one: one.rows, "epoch")(under_way)
    assert not notebook.is_running()


def test_training_shows_a_bar_and_its_epochs(shown: list[str]) -> None:
    network = nn.Sequential([nn.Flatten(), nn.Dense(2)], input_shape=(1, 4, 4), name=EVIL)
    data = load("synthetic:1x4x4:2:40")  # of which 34 are trained on
    fit(network, data, epochs=2, batch_size=10, device="vectorized")
    assert EVIL not in "".join(shown)
    assert '<progress value="68" max="68">' in shown[-1]
    assert "2 of 2 epochs" in shown[-1]
    assert [text for text in Cells(shown[-1]).texts if text in ("1", "2")] == ["1", "2"]
    before = len(shown)
    fit(network, data, epochs=1, batch_size=10, device="vectorized", progress=False)
    assert len(shown) == before


def test_progress_replaces_itself(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    under_way = SimpleNamespace(doing=f"round 1 {EVIL}", rows=race_result.race().rows)
    watch = in_notebook.watching(lambda one: one.rows, "epoch")
    watch(under_way)
    under_way.doing = "round 2"
    watch(under_way)
    assert len(shown) == 2
    assert "round 2" in shown[1]
    assert EVIL not in shown[0]
    assert Cells(shown[1]).texts[4:8] == ["pareo-compiled", "ok", "20", "1.312 s"]
    monkeypatch.setattr(notebook, "EVERY", 1000.0)
    watch(under_way)
    assert len(shown) == 2
