"""`pareo race --repeat`: sessions that differ are told apart from noise within one."""

from pathlib import Path

import numpy as np
import pytest
import typer
from race_result import made, race
from typer.testing import CliRunner

from pareo.cli import app
from pareo.cli.repeated import repeat, show
from pareo.errors import PareoError
from pareo.lab.experiment import records
from pareo.lab.race.repeats import spreads


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PAREO_RECORDS", str(tmp_path / "records.sqlite"))
    return tmp_path / "records.sqlite"


def sessions(spread: float, count: int = 40) -> list:
    """Races on a machine that is faster or slower as a whole on each day."""
    draw = np.random.default_rng(3)
    found = []
    for day in range(count):
        data = made(seed=day)
        slower = float(np.exp(draw.normal(0, spread)))
        for row in data["rows"]:
            row["samples"] = [slower * sample for sample in row["samples"]]
        found.append(race(data))
    return found


def test_the_spread_between_sessions_is_found_and_cancels_in_ratios() -> None:
    found = {one.contestant: one for one in spreads(sessions(0.05), "torch")}
    ours = found["pareo-compiled"]
    assert ours.sessions == 40
    assert ours.between == pytest.approx(0.05, rel=0.3)
    assert ours.within is not None
    assert ours.within < 0.01
    assert ours.ratio == pytest.approx(1.31 / 2.74, rel=0.02)
    assert ours.ratio_between is not None
    assert ours.ratio_between < 0.004  # beyond the error of a session's ratio, which is 0.005
    assert found["torch"].ratio is None


def test_sessions_that_do_not_differ_have_no_spread_of_their_own() -> None:
    for one in spreads(sessions(0.0)):
        assert one.between < 0.5 * (one.within or 0.0) + 0.004


def test_races_are_repeated_saved_and_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    races = iter(sessions(0.05, 3))
    records.save(race())  # of another day: it does not count

    def once() -> None:
        records.save(next(races))
        raise typer.Exit(1)

    with pytest.raises(typer.Exit) as ended:
        repeat(3, 0.0, once)
    assert ended.value.exit_code == 1
    text = capsys.readouterr().out
    assert "race 3 of 3" in text
    (line,) = [line for line in text.splitlines() if line.strip().startswith("torch ")]
    assert " 3 " in line


def test_ctrl_c_ends_the_repeats_and_shows_what_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    races = iter(sessions(0.05, 3))
    calls = []

    def once() -> None:
        calls.append(1)
        records.save(next(races))
        if len(calls) == 2:
            raise typer.Exit(130)

    with pytest.raises(typer.Exit):
        repeat(5, 0.0, once)
    assert len(calls) == 2
    assert "pareo-compiled" in capsys.readouterr().out


def test_one_race_has_no_spread(capsys: pytest.CaptureFixture[str]) -> None:
    show([race()])
    assert "fewer than two races" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--repeat", "2", "--every", "soon"], "--every expects a time such as 30m"),
        (["--repeat", "2", "--json", "a.json"], "expects no --json"),
    ],
)
def test_wrong_words_are_told(words: list[str], reason: str) -> None:
    done = CliRunner().invoke(app, ["race", *words])
    assert isinstance(done.exception, PareoError)
    assert reason in str(done.exception)
