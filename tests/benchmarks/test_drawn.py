"""Times of drawn networks: a real run, and what its ratio counts."""

import math
import subprocess
import sys

import pytest
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


@pytest.mark.slow
def test_a_run():
    command = ["--kind", "mlp", "--seed", "1", "--count", "1", "--rounds", "1"]
    command += ["--contestants", "pareo-compiled,pareo-vectorized"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.drawn", *command], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "geometric mean" in done.stdout
    wrong = subprocess.run(
        [sys.executable, "-m", "benchmarks.drawn", "--kind", "rnn"], capture_output=True, text=True
    )
    assert wrong.returncode != 0
    assert "Traceback" not in wrong.stderr
