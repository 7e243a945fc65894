"""Races of a contestant with itself: three real processes, samples kept, and gone on from."""

import json
from pathlib import Path

import pytest

from pareo.lab import self_race


def test_samples_are_kept_and_gone_on_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "races.json"
    words = ["--races", "1", "--seconds", "0.001", "--json", str(kept)]
    self_race.main(words)
    (found,) = json.loads(kept.read_text())
    assert tuple(found) == self_race.RACERS
    assert {len(samples) for samples in found.values()} <= set(range(25, self_race.MOST + 1))
    capsys.readouterr()
    # One of one is kept: nothing is raced again, and what is kept decides.
    steady = [{"one": [1.0] * 8, "same": [1.0] * 8, "slowed": [1.1] * 8}]
    kept.write_text(json.dumps(steady))
    assert self_race.main(words) == 0
    assert "slowed: slower 1" in capsys.readouterr().out
    kept.write_text(json.dumps([{**steady[0], "slowed": [1.0] * 8}]))
    assert self_race.main(words) == 1
