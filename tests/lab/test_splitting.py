"""The race of splits: every way is there, agrees, and a table says what it took."""

import json
from pathlib import Path

import pytest

from pareo.errors import PareoError
from pareo.lab import splitting


def test_a_race_of_a_small_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = splitting.networks.mlp([20, 16, 16, 4])
    monkeypatch.setitem(splitting.networks.NETWORKS, "small", lambda: small)
    file = tmp_path / "rows.json"
    words = ["small", "--batch", "8", "--steps", "3", "--rounds", "2", "--workers", "2"]
    ways = "data in threads,pipeline in threads,neurons in threads"
    assert splitting.main([*words, "--ways", ways, "--json", str(file)]) == 0
    rows = {row["way"]: row for row in json.loads(file.read_text())["rows"]}
    names = {"one worker", "data in threads", "pipeline in threads", "neurons in threads"}
    assert names < set(rows)
    assert not any("processes" in way for way in rows)
    for row in rows.values():
        assert len(row["samples"]) == 4
        assert row["apart"] < 1e-5
    assert sum(rows["pipeline in threads"]["predicted"]) == pytest.approx(1)
    shown = capsys.readouterr().out
    assert all(way.split()[0] in shown for way in rows)


def test_a_way_that_fails_or_learns_something_else_is_a_row_without_times() -> None:
    network = splitting.networks.mlp([20, 16, 4])
    given = splitting.load("synthetic:20:4:30")
    right = splitting.Settings(batch_size=5, rate=1e-2)
    wrong = splitting.Settings(batch_size=5, rate=5e-2)

    def fails() -> splitting.Outcome:
        raise PareoError("no cores left")

    rows = splitting.race(
        {
            splitting.ONE: lambda: splitting.alone(network, given, right, 1),
            "other rate": lambda: splitting.alone(network, given, wrong, 1),
            "fails": fails,
        },
        workers=2, rounds=2, say=lambda doing: None,
    )  # fmt: skip
    assert len(rows[0].samples) == 8
    assert rows[1].samples == []
    assert "apart from one worker's" in rows[1].note
    assert rows[2].note == "no cores left"


def test_one_step_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        splitting.main(["mlp-small", "--steps", "1"])
    assert end.value.code == 2
    assert "at least 2" in capsys.readouterr().err
