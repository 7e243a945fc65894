"""A script that does not guard its calls gets one sentence, before any process is started."""

import subprocess
import sys
from pathlib import Path

import pytest

from pareo.lab.experiment.main_guard import guarded

GUARD = 'if __name__ == "__main__":\n'


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("pareo.race('no-such-network')", "pareo.race"),
        ("(lambda: pareo.sweep('no-such-network'))()", "pareo.sweep"),
    ],
)
def test_an_unguarded_script_is_refused_and_a_guarded_one_is_not(
    call: str, name: str, tmp_path: Path
) -> None:
    script = tmp_path / "mine.py"

    def run(text: str) -> str:
        script.write_text(text)
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        return done.stderr.splitlines()[-1]

    assert f"mine.py: {name} is called below `if __name__" in run(f"import pareo\n{call}\n")
    assert "a network is one of papers-cnn" in run(f"import pareo\n{GUARD}    {call}\n")


def test_a_script_that_leaves_early_is_guarded() -> None:
    assert guarded('if __name__ != "__main__":\n    raise SystemExit\nrace()\n', 3)
    assert not guarded("for n in range(3):\n    race()\n", 2)
    assert guarded("this is no Python", 1)
