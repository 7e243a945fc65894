"""Recorded steps beside Python: a real run on small networks, and wrong names."""

import subprocess
import sys
from typing import Any

import pytest
from benchmarks import recorded

from pareo.errors import PareoError


def test_a_run(capsys: Any) -> None:
    recorded.main(names="resnet8:2,cnn-3-0", rounds=2, threads=2)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "resnet8:2" in line]
    assert len(rows) == 1
    batch, calls = rows[0][3], rows[0][5]
    assert (batch, int(calls) > 20) == ("2", True)


@pytest.mark.parametrize("name", ["resnet8", "resnet8:0", "nothing:3", "cnn-1", "cnn-1-x", ""])
def test_a_wrong_name_is_an_error(name: str) -> None:
    with pytest.raises(PareoError, match="--networks expects"):
        recorded.found(name)


def test_a_wrong_name_on_the_command_line() -> None:
    command = [sys.executable, "-m", "benchmarks.recorded", "--networks", "resnet8"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "got 'resnet8'" in done.stderr
    assert "Traceback" not in done.stderr
