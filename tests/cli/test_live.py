"""Life signs: lines where nobody draws, a sentence where the machine is busy."""

import pytest

from pareo.cli import live


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
