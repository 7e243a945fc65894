"""Times of drawn networks: a real run, and what its ratio counts."""

import math
import subprocess
import sys
from contextlib import suppress

import pytest
from benchmarks import drawn
from benchmarks.drawn import ratio
from benchmarks.today import Cell


def cell(name, *seconds, note=""):
    return Cell("cnn-0-0", 1, name, seconds_per_step=list(seconds), note=note)


def test_the_ratio_is_that_of_the_fastest_other():
    cells = {"ours": cell("ours", 2.0, 2.0, 4.0), "a": cell("a", 3.0), "b": cell("b", 5.0)}
    assert ratio(cells) == 1.5
    cells["a"] = cell("a", 3.0, note="refused: its first loss is 3")
    assert ratio(cells) == 2.5
    assert math.isnan(ratio({"ours": cell("ours"), "a": cell("a", 1.0)}))


class Recorded:
    """A team that notes what is asked of it."""

    def __init__(self):
        self.asked = []

    def pause(self):
        self.asked.append("pause")

    def resume(self):
        self.asked.append("resume")


def test_all_others_are_paused_while_one_is_timed(monkeypatch):
    monkeypatch.setattr(drawn, "SETTLE", 0)
    teams = [Recorded() for _ in range(3)]
    with suppress(ZeroDivisionError), drawn.Hall(teams).alone(teams[1]):
        assert [team.asked for team in teams] == [["pause"], [], ["pause"]]
        raise ZeroDivisionError
    assert [team.asked[-1:] for team in teams] == [["resume"], [], ["resume"]]


@pytest.mark.slow
def test_a_run():
    command = ["--kind", "mlp", "--seed", "1", "--count", "3", "--rounds", "1", "--teams", "2"]
    command += ["--at-once", "--contestants", "pareo-compiled,pareo-vectorized"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.drawn", *command], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "geometric mean" in done.stdout
    rows = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("│")]
    assert rows == ["0", "1", "2"]
    wrong = subprocess.run(
        [sys.executable, "-m", "benchmarks.drawn", "--kind", "rnn"], capture_output=True, text=True
    )
    assert wrong.returncode != 0
    assert "Traceback" not in wrong.stderr
