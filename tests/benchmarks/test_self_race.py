"""Races of a contestant with itself: three real processes, samples kept and continued."""

import json
from pathlib import Path

import pytest
import typer
from benchmarks import self_race


@pytest.mark.slow
def test_samples_are_kept_and_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "races.json"

    def run() -> int:
        try:
            self_race.main(races=1, turn=0.001, json_file=kept)
        except typer.Exit as ended:
            return ended.exit_code
        return 0

    run()
    (found,) = json.loads(kept.read_text())
    assert tuple(found) == self_race.RACERS
    assert {len(samples) for samples in found.values()} <= set(range(25, self_race.MOST + 1))
    capsys.readouterr()
    # One of one is kept: nothing is raced again, and the kept samples decide.
    steady = [{"one": [1.0] * 8, "same": [1.0] * 8, "slowed": [1.1] * 8}]
    kept.write_text(json.dumps(steady))
    assert run() == 0
    assert "slowed: slower 1" in capsys.readouterr().out
    kept.write_text(json.dumps([{**steady[0], "slowed": [1.0] * 8}]))
    assert run() == 1
