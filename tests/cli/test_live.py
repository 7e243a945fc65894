"""Life signs: lines where nobody draws, a sentence where the machine is busy."""

import io
import re
import time

import pytest
from rich.console import Console

from pareo.cli import live
from pareo.training import progress
from pareo.training.history import Epoch


def test_what_is_under_way_is_a_line_and_numbers_alone_are_no_news(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(live.time, "monotonic", lambda: now)
    with live.display(lambda doing: "a table", lambda doing: doing) as show:
        show("torch: building")
        show("round 1, torch is running; 9 s left")
        show("round 2, torch is running; 8 s left")
        now += 4
        show("round 7, torch is running; 5 s left")
        now += 2
        show("round 9, torch is running; 3 s left")
        show("jax is running")
        show("")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "     0 s  torch: building",
        "     0 s  round 1, torch is running; 9 s left",
        "     6 s  round 9, torch is running; 3 s left",
        "     6 s  jax is running",
    ]


def test_what_takes_long_is_said_again_until_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    log = live.Log()
    with log.alive(quiet=0.1):
        log("torch: building")
        time.sleep(0.5)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "     0 s  torch: building"
    assert 2 <= len(said) <= 6
    assert set(said[1:]) <= {f"     {second} s  still: torch: building" for second in (0, 1)}
    time.sleep(0.3)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("idle", "said"), [(1.9, ""), (None, ""), (0.5, "0.5 cores are idle")])
def test_a_busy_machine_is_told_at_the_start(
    idle: float | None,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "idle_cores", lambda seconds: idle)
    live.say_if_busy(2)
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == bool(said)


@pytest.mark.parametrize("columns", [60, 80, 100, 140])
def test_the_bar_keeps_a_width_and_facts_are_whole(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    bar = progress.Bar("papers-cnn", epochs=40, images=60_000)
    bar.tested(Epoch(1, 1.0, 0.1, 0.9812, 0.1, 1.0, 1.0, None))
    bar.move(epoch=17, done=30_000, loss=0.1234, speed=98_765.0)
    console = Console(
        width=columns, file=io.StringIO(), force_terminal=True, color_system="standard"
    )
    assert bar._progress is not None
    console.print(bar._progress.get_renderable())
    assert isinstance(console.file, io.StringIO)
    shown = re.sub(r"\x1b\[[\d;]*m", "", console.file.getvalue())
    (line,) = shown.rstrip("\n").splitlines()
    assert len(line.rstrip()) <= columns
    assert sum(character in "━╸╺" for character in line) >= 10
    assert "…" not in line
    assert "epoch 17/40" in line
    assert ("98,765 images/s" in line) == (columns >= 100)


def test_sentences_break_between_words_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Other programs are running: torch-channels-last and pareo[tensorflow] " * 3
    monkeypatch.setenv("COLUMNS", "60")
    live.complain(text)
    assert capsys.readouterr().err == f"pareo: {text}\n"
    lines = live.wrapped(text, True).splitlines()
    assert max(map(len, lines)) <= 60
    assert " ".join(lines).split() == text.split()
    console = Console(width=60, file=io.StringIO(), force_terminal=True)
    live.print_line(console, text)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().split() == text.split()
